// f16, bf16 and the 8-bit floats to f32 and back, a vector of 32-bit lanes at a time. Compiled once per
// instruction set, and by integer operations alone but for two exact or correctly rounded f32 additions: the
// CPU's own conversion instructions for bf16, and the library's code, differ between CPUs and versions in
// NaNs and in rounding.
//
// Formats: IEEE 754-2019 section 3.4 (binary16); bf16 is the upper half of binary32; f8e4m3fn and f8e5m2 are
// E4M3 and E5M2 of the OCP 8-bit Floating Point Specification (OFP8) 1.0. Its conversions may saturate or
// not; these do not, as those of ml_dtypes and PyTorch: what passes the largest value becomes NaN (f8e4m3fn,
// which has no infinity) or infinity (f8e5m2).
#if defined(NEXAR_REDUCE_CONVERT_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef NEXAR_REDUCE_CONVERT_INL_HPP
#undef NEXAR_REDUCE_CONVERT_INL_HPP
#else
#define NEXAR_REDUCE_CONVERT_INL_HPP
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace nexar::reduce::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D8 = hn::ScalableTag<uint8_t>;
using D32 = hn::ScalableTag<uint32_t>;
using Di32 = hn::ScalableTag<int32_t>;
using Df32 = hn::ScalableTag<float>;
using V8 = hn::Vec<D8>;
using V32 = hn::Vec<D32>;
using Vf32 = hn::Vec<Df32>;

constexpr uint32_t f32_nan = 0x7fc00000;
constexpr uint32_t f32_sign = 0x80000000;

// Lanes whose value, below 2^31 in each, exceeds `limit`; compared as signed, which every instruction set
// can.
HWY_INLINE hn::Mask<Df32> exceeds(V32 value, int32_t limit) {
    const Di32 di;
    return hn::RebindMask(Df32(), hn::Gt(hn::BitCast(di, value), hn::Set(di, limit)));
}

HWY_INLINE V32 choose(hn::Mask<Df32> mask, V32 yes, V32 no) {
    return hn::IfThenElse(hn::RebindMask(D32(), mask), yes, no);
}

// The formats with fewer bits than an f32 in exponent and fraction. `Finite`: there is no infinity, all ones
// is the one NaN, and what passes the largest value becomes that NaN.
template <int exponent_bits, int fraction_bits, uint16_t one_nan, bool Finite = false>
struct SmallFloat {
    static constexpr uint16_t nan = one_nan;
    static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
    // Every magnitude above it is a NaN: infinity, or the largest number.
    static constexpr int16_t last = Finite ? one_nan - 1 : ((1 << exponent_bits) - 1) << fraction_bits;
    // What a number rounds to that passes the largest one.
    static constexpr uint16_t overflow = Finite ? one_nan : last;
    static constexpr int shift = 23 - fraction_bits;  // From the fraction of an f32.
    static constexpr uint32_t rebias = uint32_t{127 - bias} << 23;

    // `high`: the number in the upper bits of each lane, the rest zero. NaNs stay some NaN.
    static HWY_INLINE Vf32 widen(V32 high) {
        const D32 d;
        const Df32 df;
        const V32 sign = hn::And(high, hn::Set(d, f32_sign));
        const V32 magnitude = hn::ShiftRight<8 - exponent_bits>(hn::Xor(high, sign));
        const V32 normal = hn::Add(hn::Add(magnitude, hn::Set(d, rebias)), above_numbers(magnitude));
        // Subnormal: with an exponent one higher the value reads 2^(1 - bias) too much; that subtraction is
        // exact.
        const Vf32 offset = hn::BitCast(df, hn::Set(d, rebias + (1u << 23)));
        const Vf32 raised = hn::BitCast(df, hn::Add(magnitude, hn::Set(d, rebias + (1u << 23))));
        const V32 subnormal = hn::BitCast(d, hn::Sub(raised, offset));
        return hn::BitCast(df, hn::Or(sign, choose(exceeds(magnitude, 0x007fffff), normal, subnormal)));
    }

    // The number comes back in the lower bits of each lane, the upper ones zero.
    static HWY_INLINE V32 narrow(Vf32 value) {
        const D32 d;
        const Df32 df;
        const V32 bits = hn::BitCast(d, value);
        const V32 sign = hn::And(bits, hn::Set(d, f32_sign));
        const V32 magnitude = hn::Xor(bits, sign);
        // Half of the last place less one, plus the last place itself if odd, then cut: to nearest even. A
        // carry moves into the exponent as it should.
        constexpr uint32_t rebias_and_half = (1u << (shift - 1)) - 1 - rebias;
        const V32 odd = hn::And(hn::ShiftRight<shift>(magnitude), hn::Set(d, 1));
        const V32 rounded =
            hn::ShiftRight<shift>(hn::Add(hn::Add(magnitude, hn::Set(d, rebias_and_half)), odd));
        const V32 normal = hn::Min(rounded, hn::Set(d, overflow));
        // Below 2^(1 - bias): the last place of this number is that of a subnormal, so this addition rounds
        // there.
        constexpr uint32_t aligned = uint32_t{127 + 24 - bias - fraction_bits} << 23;
        const V32 place = hn::Set(d, aligned);
        const Vf32 shifted = hn::Add(hn::BitCast(df, magnitude), hn::BitCast(df, place));
        const V32 subnormal = hn::Sub(hn::BitCast(d, shifted), place);
        constexpr int32_t largest_subnormal = (int32_t{128 - bias} << 23) - 1;
        const V32 finite = choose(exceeds(magnitude, largest_subnormal), normal, subnormal);
        // Also what became the NaN of a finite format by passing its largest number: without its sign.
        const auto is_nan = Finite ? exceeds(finite, last) : exceeds(magnitude, 0x7f800000);
        return choose(is_nan, hn::Set(d, nan),
                      hn::Or(finite, hn::ShiftRight<31 - exponent_bits - fraction_bits>(sign)));
    }

  private:
    // What makes infinity and NaN of an f32 of those of this format: the exponent goes to all ones.
    static HWY_INLINE V32 above_numbers(V32 magnitude) {
        const D32 d;
        constexpr int32_t numbers = (int32_t{last} - (Finite ? 0 : 1)) << shift;
        // An infinity has the format's own exponent of all ones; the one NaN of a finite format is given the
        // rest.
        constexpr uint32_t more = Finite ? 0x7fc00000 - rebias - (uint32_t{one_nan} << shift) : rebias;
        constexpr int32_t limit = numbers | ((1 << shift) - 1);
        return choose(exceeds(magnitude, limit), hn::Set(d, more), hn::Zero(d));
    }
};

using F16 = SmallFloat<5, 10, 0x7e00>;
using F8e5m2 = SmallFloat<5, 2, 0x7e>;
using F8e4m3fn = SmallFloat<4, 3, 0x7f, true>;

struct Bf16 {
    static constexpr uint16_t nan = 0x7fc0;
    static constexpr int16_t last = 0x7f80;

    static HWY_INLINE Vf32 widen(V32 high) { return hn::BitCast(Df32(), high); }

    static HWY_INLINE V32 narrow(Vf32 value) {
        const D32 d;
        const V32 bits = hn::BitCast(d, value);
        const V32 odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
        const V32 rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd));
        const V32 magnitude = hn::And(bits, hn::Set(d, ~f32_sign));
        return choose(exceeds(magnitude, 0x7f800000), hn::Set(d, nan), rounded);
    }
};

// Runs `step(out, in)` over vectors of f32 lanes; the last, partial one through padded copies, so that every
// element takes the same instructions.
template <class In, class Out, class Step>
HWY_INLINE void convert_all(void* out, const void* in, size_t count, Step step) {
    const size_t lanes = hn::Lanes(Df32());
    auto* to = static_cast<uint8_t*>(out);
    const auto* from = static_cast<const uint8_t*>(in);
    size_t i = 0;
    for (; i + lanes <= count; i += lanes) step.run(to + i * sizeof(Out), from + i * sizeof(In));
    if (i == count) return;
    HWY_ALIGN uint8_t from_padded[hn::MaxLanes(D8())] = {};
    HWY_ALIGN uint8_t to_padded[hn::MaxLanes(D8())];
    std::memcpy(from_padded, from + i * sizeof(In), (count - i) * sizeof(In));
    step.run(to_padded, from_padded);
    std::memcpy(to + i * sizeof(Out), to_padded, (count - i) * sizeof(Out));
}

// As many lanes of a narrower type as a vector has f32 lanes, and their bytes.
template <class Narrow>
using DNarrow = hn::Rebind<Narrow, Df32>;
template <class Narrow>
using DNarrowBytes = hn::Repartition<uint8_t, DNarrow<Narrow>>;

template <class Format, class Narrow>
struct WidenStep {
    HWY_INLINE void run(uint8_t* out, const uint8_t* in) const {
        const D32 d;
        const auto narrow = hn::BitCast(DNarrow<Narrow>(), hn::LoadU(DNarrowBytes<Narrow>(), in));
        constexpr int up = 32 - 8 * static_cast<int>(sizeof(Narrow));
        const V32 bits = hn::BitCast(d, Format::widen(hn::ShiftLeft<up>(hn::PromoteTo(d, narrow))));
        const auto nan = exceeds(hn::And(bits, hn::Set(d, ~f32_sign)), 0x7f800000);
        hn::StoreU(hn::BitCast(D8(), choose(nan, hn::Set(d, f32_nan), bits)), D8(), out);
    }
};

template <class Format, class Narrow>
struct NarrowStep {
    HWY_INLINE void run(uint8_t* out, const uint8_t* in) const {
        const V32 low = Format::narrow(hn::BitCast(Df32(), hn::LoadU(D8(), in)));
        // Saturating, but no lane exceeds the narrow type.
        const auto narrow = hn::DemoteTo(DNarrow<Narrow>(), hn::BitCast(Di32(), low));
        hn::StoreU(hn::BitCast(DNarrowBytes<Narrow>(), narrow), DNarrowBytes<Narrow>(), out);
    }
};

template <class Format, class Narrow = uint16_t>
void widen_all(void* f32, const void* in, size_t count) {
    convert_all<Narrow, float>(f32, in, count, WidenStep<Format, Narrow>());
}

template <class Format, class Narrow = uint16_t>
void narrow_all(void* out, const void* f32, size_t count) {
    convert_all<float, Narrow>(out, f32, count, NarrowStep<Format, Narrow>());
}

}  // namespace nexar::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
