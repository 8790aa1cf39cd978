// What one reduction does to a vector: begin with the first source, fold in the others, end. Compiled once
// per instruction set. Raw vectors are bytes, so that neither alignment nor type punning matters.
#if defined(NEXAR_REDUCE_COMBINE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef NEXAR_REDUCE_COMBINE_INL_HPP
#undef NEXAR_REDUCE_COMBINE_INL_HPP
#else
#define NEXAR_REDUCE_COMBINE_INL_HPP
#endif

#include <hwy/highway.h>

#include "reduce/convert-inl.hpp"
#include "reduce/dtype.hpp"

HWY_BEFORE_NAMESPACE();
namespace nexar::reduce::HWY_NAMESPACE {

// The products below give their low bits only; Highway has none for 8 and 64 bits.
HWY_INLINE V8 product_low(uint8_t, V8 a, V8 b) {
    const hn::ScalableTag<uint16_t> d;
    const auto a16 = hn::BitCast(d, a);
    const auto b16 = hn::BitCast(d, b);
    const auto low_byte = hn::Set(d, 0x00ff);
    const auto even = hn::And(hn::Mul(a16, b16), low_byte);
    const auto odd = hn::Mul(hn::AndNot(low_byte, a16), hn::ShiftRight<8>(b16));
    return hn::BitCast(D8(), hn::Or(even, odd));
}

template <class T>
HWY_INLINE V8 product_low(T, V8 a, V8 b) {
    const hn::ScalableTag<T> d;
    return hn::BitCast(D8(), hn::Mul(hn::BitCast(d, a), hn::BitCast(d, b)));
}

HWY_INLINE V8 product_low(uint64_t, V8 a, V8 b) {
    const hn::ScalableTag<uint64_t> d;
    const auto a64 = hn::BitCast(d, a);
    const auto b64 = hn::BitCast(d, b);
    const auto a_high = hn::BitCast(D32(), hn::ShiftRight<32>(a64));
    const auto b_high = hn::BitCast(D32(), hn::ShiftRight<32>(b64));
    const auto a32 = hn::BitCast(D32(), a);
    const auto b32 = hn::BitCast(D32(), b);
    const auto cross = hn::Add(hn::MulEven(a_high, b32), hn::MulEven(a32, b_high));
    return hn::BitCast(D8(), hn::Add(hn::MulEven(a32, b32), hn::ShiftLeft<32>(cross)));
}

// T is unsigned for sum and prod, which are the same for both signs.
template <class T, ReduceOp op>
struct CombineInteger {
    using D = hn::ScalableTag<T>;
    struct Accumulator {
        V8 raw;
    };

    HWY_INLINE Accumulator begin(V8 raw) const { return {raw}; }

    HWY_INLINE Accumulator fold(Accumulator acc, V8 raw) const {
        const auto a = hn::BitCast(D(), acc.raw);
        const auto b = hn::BitCast(D(), raw);
        if constexpr (op == ReduceOp::sum) return {hn::BitCast(D8(), hn::Add(a, b))};
        if constexpr (op == ReduceOp::prod) return {product_low(T{}, acc.raw, raw)};
        if constexpr (op == ReduceOp::min) return {hn::BitCast(D8(), hn::Min(a, b))};
        if constexpr (op == ReduceOp::max) return {hn::BitCast(D8(), hn::Max(a, b))};
    }

    HWY_INLINE V8 end(Accumulator acc) const { return acc.raw; }
};

template <class T>
HWY_INLINE hn::Vec<hn::ScalableTag<T>> one_nan() {
    constexpr auto bits = sizeof(T) == 4 ? hwy::MakeUnsigned<T>(f32_nan)
                                         : static_cast<hwy::MakeUnsigned<T>>(uint64_t{0x7ff8} << 48);
    return hn::BitCast(hn::ScalableTag<T>(), hn::Set(hn::ScalableTag<hwy::MakeUnsigned<T>>(), bits));
}

template <class T, ReduceOp op>
struct CombineFloat {
    using D = hn::ScalableTag<T>;
    using V = hn::Vec<D>;
    struct Accumulator {
        V value;
    };

    HWY_INLINE Accumulator begin(V8 raw) const { return {hn::BitCast(D(), raw)}; }

    HWY_INLINE Accumulator fold(Accumulator acc, V8 raw) const {
        const V a = acc.value;
        const V b = hn::BitCast(D(), raw);
        if constexpr (op == ReduceOp::sum) return {hn::Add(a, b)};
        if constexpr (op == ReduceOp::prod) return {hn::Mul(a, b)};
        // Equal numbers are the same bits, but for the zeros, of which Or picks -0 and And +0.
        if constexpr (op == ReduceOp::min) return {ordered(a, b, hn::Or(a, b), hn::Min(a, b))};
        if constexpr (op == ReduceOp::max) return {ordered(a, b, hn::And(a, b), hn::Max(a, b))};
    }

    // NaN survives every fold, so that one look at the end suffices.
    HWY_INLINE V8 end(Accumulator acc) const {
        return hn::BitCast(D8(), hn::IfThenElse(hn::IsNaN(acc.value), one_nan<T>(), acc.value));
    }

  private:
    static HWY_INLINE V ordered(V a, V b, V equal, V different) {
        const V number = hn::IfThenElse(hn::Eq(a, b), equal, different);
        return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), one_nan<T>(), number);
    }
};

// Sums and products of f16 and bf16: each 32-bit lane holds two elements, kept as two vectors of f32 between
// begin and end. Nothing crosses lanes.
template <class Format, ReduceOp op>
struct CombineHalf {
    struct Accumulator {
        Vf32 low, high;
    };

    HWY_INLINE Accumulator begin(V8 raw) const {
        const V32 pair = hn::BitCast(D32(), raw);
        return {Format::widen(hn::ShiftLeft<16>(pair)),
                Format::widen(hn::And(pair, hn::Set(D32(), 0xffff0000)))};
    }

    HWY_INLINE Accumulator fold(Accumulator acc, V8 raw) const {
        const Accumulator b = begin(raw);
        if constexpr (op == ReduceOp::sum) return {hn::Add(acc.low, b.low), hn::Add(acc.high, b.high)};
        if constexpr (op == ReduceOp::prod) return {hn::Mul(acc.low, b.low), hn::Mul(acc.high, b.high)};
    }

    HWY_INLINE V8 end(Accumulator acc) const {
        const V32 high = hn::ShiftLeft<16>(Format::narrow(acc.high));
        return hn::BitCast(D8(), hn::Or(Format::narrow(acc.low), high));
    }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// Sums and products of f16 with F16C, five times as fast. Unlike the bf16 instructions it follows IEEE 754
// whatever the control bits say: the bits are those of F16::widen and narrow, but for NaNs, and those are
// unified at the end. The tests compare it with all 2^16 values and all ties.
template <ReduceOp op>
struct CombineHalf<F16, op> {
    using Dhalf = hn::Rebind<hwy::float16_t, Df32>;
    using D8half = hn::Repartition<uint8_t, Dhalf>;
    struct Accumulator {
        Vf32 low, high;
    };

    HWY_INLINE Accumulator begin(V8 raw) const {
        const auto low = hn::BitCast(Dhalf(), hn::LowerHalf(D8half(), raw));
        const auto high = hn::BitCast(Dhalf(), hn::UpperHalf(D8half(), raw));
        return {hn::PromoteTo(Df32(), low), hn::PromoteTo(Df32(), high)};
    }

    HWY_INLINE Accumulator fold(Accumulator acc, V8 raw) const {
        const Accumulator b = begin(raw);
        if constexpr (op == ReduceOp::sum) return {hn::Add(acc.low, b.low), hn::Add(acc.high, b.high)};
        if constexpr (op == ReduceOp::prod) return {hn::Mul(acc.low, b.low), hn::Mul(acc.high, b.high)};
    }

    HWY_INLINE V8 end(Accumulator acc) const { return hn::Combine(D8(), narrow(acc.high), narrow(acc.low)); }

  private:
    static HWY_INLINE hn::Vec<D8half> narrow(Vf32 value) {
        const Vf32 one = hn::IfThenElse(hn::IsNaN(value), one_nan<float>(), value);
        return hn::BitCast(D8half(), hn::DemoteTo(Dhalf(), one));
    }
};
#endif

// min and max of f16, bf16 and the 8-bit floats as signed integers: with the magnitude of negatives inverted
// these order like the numbers, -0 below +0. NaN becomes the integer that always wins, which no number maps
// to.
template <class Format, ReduceOp op, class Lane = int16_t>
struct CombineOrder {
    using D = hn::ScalableTag<Lane>;
    using V = hn::Vec<D>;
    static constexpr Lane largest = hwy::LimitsMax<Lane>();
    static constexpr Lane nan_key = op == ReduceOp::min ? hwy::LimitsMin<Lane>() : largest;
    struct Accumulator {
        V key;
    };

    HWY_INLINE Accumulator begin(V8 raw) const {
        const D d;
        const V bits = hn::BitCast(d, raw);
        const auto nan =
            hn::Gt(hn::And(bits, hn::Set(d, largest)), hn::Set(d, static_cast<Lane>(Format::last)));
        return {hn::IfThenElse(nan, hn::Set(d, nan_key), flip(bits))};
    }

    HWY_INLINE Accumulator fold(Accumulator acc, V8 raw) const {
        const V key = begin(raw).key;
        if constexpr (op == ReduceOp::min) return {hn::Min(acc.key, key)};
        if constexpr (op == ReduceOp::max) return {hn::Max(acc.key, key)};
    }

    HWY_INLINE V8 end(Accumulator acc) const {
        const D d;
        const auto nan = hn::Eq(acc.key, hn::Set(d, nan_key));
        const V result = hn::IfThenElse(nan, hn::Set(d, static_cast<Lane>(Format::nan)), flip(acc.key));
        return hn::BitCast(D8(), result);
    }

  private:
    // Its own inverse.
    static HWY_INLINE V flip(V bits) {
        return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(D(), largest)));
    }
};

// Emulated vectors: four conversions in line take the compiler seven seconds, called ones two.
#undef NEXAR_REDUCE_CALL
#if HWY_TARGET == HWY_EMU128
#define NEXAR_REDUCE_CALL HWY_NOINLINE
#else
#define NEXAR_REDUCE_CALL HWY_INLINE
#endif
template <class Format>
NEXAR_REDUCE_CALL Vf32 widen_called(V32 high) {
    return Format::widen(high);
}
template <class Format>
NEXAR_REDUCE_CALL V32 narrow_called(Vf32 value) {
    return Format::narrow(value);
}

// Sums and products of the 8-bit floats: four elements in a lane of 32 bits, as CombineHalf has two.
template <class Format, ReduceOp op>
struct CombineQuarter {
    struct Accumulator {
        Vf32 v0, v1, v2, v3;
    };

    HWY_INLINE Accumulator begin(V8 raw) const {
        const V32 four = hn::BitCast(D32(), raw);
        const V32 upper = hn::Set(D32(), 0xff000000);
        return {widen_called<Format>(hn::ShiftLeft<24>(four)),
                widen_called<Format>(hn::And(hn::ShiftLeft<16>(four), upper)),
                widen_called<Format>(hn::And(hn::ShiftLeft<8>(four), upper)),
                widen_called<Format>(hn::And(four, upper))};
    }

    HWY_INLINE Accumulator fold(Accumulator a, V8 raw) const {
        const Accumulator b = begin(raw);
        if constexpr (op == ReduceOp::sum)
            return {hn::Add(a.v0, b.v0), hn::Add(a.v1, b.v1), hn::Add(a.v2, b.v2), hn::Add(a.v3, b.v3)};
        if constexpr (op == ReduceOp::prod)
            return {hn::Mul(a.v0, b.v0), hn::Mul(a.v1, b.v1), hn::Mul(a.v2, b.v2), hn::Mul(a.v3, b.v3)};
    }

    HWY_INLINE V8 end(Accumulator acc) const {
        const V32 low =
            hn::Or(narrow_called<Format>(acc.v0), hn::ShiftLeft<8>(narrow_called<Format>(acc.v1)));
        const V32 high =
            hn::Or(narrow_called<Format>(acc.v2), hn::ShiftLeft<8>(narrow_called<Format>(acc.v3)));
        return hn::BitCast(D8(), hn::Or(low, hn::ShiftLeft<16>(high)));
    }
};

// One source, divided at the end.
template <class T>
struct DivideFloat : CombineFloat<T, ReduceOp::sum> {
    using Base = CombineFloat<T, ReduceOp::sum>;
    T divisor;

    explicit DivideFloat(uint64_t divisor_) : divisor(static_cast<T>(divisor_)) {}

    HWY_INLINE V8 end(typename Base::Accumulator acc) const {
        return Base::end({hn::Div(acc.value, hn::Set(typename Base::D(), divisor))});
    }
};

template <class Format>
struct DivideHalf : CombineHalf<Format, ReduceOp::sum> {
    using Base = CombineHalf<Format, ReduceOp::sum>;
    float divisor;

    explicit DivideHalf(uint64_t divisor_) : divisor(static_cast<float>(divisor_)) {}

    HWY_INLINE V8 end(typename Base::Accumulator acc) const {
        const Vf32 by = hn::Set(Df32(), divisor);
        return Base::end({hn::Div(acc.low, by), hn::Div(acc.high, by)});
    }
};

template <class Format>
struct DivideQuarter : CombineQuarter<Format, ReduceOp::sum> {
    using Base = CombineQuarter<Format, ReduceOp::sum>;
    float divisor;

    explicit DivideQuarter(uint64_t divisor_) : divisor(static_cast<float>(divisor_)) {}

    HWY_INLINE V8 end(typename Base::Accumulator acc) const {
        const Vf32 by = hn::Set(Df32(), divisor);
        return Base::end(
            {hn::Div(acc.v0, by), hn::Div(acc.v1, by), hn::Div(acc.v2, by), hn::Div(acc.v3, by)});
    }
};

}  // namespace nexar::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
