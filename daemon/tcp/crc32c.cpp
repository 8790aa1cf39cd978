// See crc32c.hpp.
#include "tcp/crc32c.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>

namespace nexar::tcp {
namespace {

constexpr uint32_t polynomial = 0x82f63b78;  // reflected

constexpr std::array<std::array<uint32_t, 256>, 8> make_tables() {
    std::array<std::array<uint32_t, 256>, 8> t{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; ++bit) c = (c >> 1) ^ ((c & 1) != 0 ? polynomial : 0);
        t[0][i] = c;
    }
    for (size_t k = 1; k < 8; ++k)
        for (size_t i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
    return t;
}
constexpr auto tables = make_tables();

// Eight bytes at a time ("slicing by 8").
uint32_t portable(Bytes bytes, uint32_t c) {
    const std::byte* p = bytes.data();
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, p += 8) {
        uint64_t word;
        std::memcpy(&word, p, sizeof word);
        word ^= c;
        c = 0;
        for (size_t k = 0; k < 8; ++k) c ^= tables[7 - k][(word >> (8 * k)) & 0xff];
    }
    for (; left > 0; --left, ++p) c = (c >> 8) ^ tables[0][(c ^ static_cast<uint32_t>(*p)) & 0xff];
    return c;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint64_t step(uint64_t c, const std::byte* p) {
    uint64_t word;
    std::memcpy(&word, p, sizeof word);
    return __builtin_ia32_crc32di(c, word);
}

// One instruction takes three cycles and the next can begin after one, if it does not wait for its result:
// three parts of the bytes at a time, each from 0 but the first, and then what the later bytes make of the
// earlier ones' register.
constexpr size_t lane_bytes = 2048;

// What lane_bytes zeros make of a register. That is linear, so it is the sum of what they make of its bytes.
class PastLane {
  public:
    PastLane() {
        const std::array<std::byte, lane_bytes> zeros{};
        for (size_t k = 0; k < 4; ++k)
            for (size_t i = 0; i < 256; ++i) t_[k][i] = portable(zeros, static_cast<uint32_t>(i) << (8 * k));
    }
    uint64_t operator()(uint64_t c) const {
        return t_[0][c & 0xff] ^ t_[1][(c >> 8) & 0xff] ^ t_[2][(c >> 16) & 0xff] ^ t_[3][(c >> 24) & 0xff];
    }

  private:
    std::array<std::array<uint32_t, 256>, 4> t_;
};

__attribute__((target("sse4.2"))) uint32_t by_instruction(Bytes bytes, uint32_t crc) {
    const std::byte* p = bytes.data();
    size_t left = bytes.size();
    uint64_t c = crc;
    if (left >= 3 * lane_bytes) {
        static const PastLane past_lane;
        for (; left >= 3 * lane_bytes; left -= 3 * lane_bytes, p += 2 * lane_bytes) {
            uint64_t second = 0, third = 0;
            for (const std::byte* end = p + lane_bytes; p < end; p += 8) {
                c = step(c, p);
                second = step(second, p + lane_bytes);
                third = step(third, p + 2 * lane_bytes);
            }
            c = past_lane(past_lane(c) ^ second) ^ third;
        }
    }
    for (; left >= 8; left -= 8, p += 8) c = step(c, p);
    return portable({p, left}, static_cast<uint32_t>(c));
}

// Four registers of 64 bytes each take the bytes that stand 256 further, as products without carry move them
// there (V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel
// 2009).
constexpr size_t register_bytes = 64, folded_bytes = 4 * register_bytes;

// What 64 bits are multiplied by to stand n bits further: x^(n - 1), since a product of reflected factors
// is one bit short.
consteval long long further_by(unsigned n) {
    uint32_t power = 0x80000000u;
    for (unsigned i = 1; i < n; ++i) power = (power >> 1) ^ ((power & 1) != 0 ? polynomial : 0);
    return static_cast<long long>(uint64_t{power} << 32);
}

__attribute__((target("avx512f,vpclmulqdq"), always_inline)) inline __m512i fold(__m512i a, __m512i factors,
                                                                                 __m512i next) {
    constexpr int sum_of_three = 0x96;
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(a, factors, 0x00),
                                     _mm512_clmulepi64_epi128(a, factors, 0x11), next, sum_of_three);
}

// Loaded once: what is stored is what is summed, whatever the memory has by then.
template <bool copies>
__attribute__((target("avx512f"), always_inline)) inline __m512i taken(const std::byte* from, std::byte* to,
                                                                       size_t at) {
    __m512i value = _mm512_loadu_si512(from + at);
    if constexpr (copies) {
        asm("" : "+v"(value));
        _mm512_storeu_si512(to + at, value);
    }
    return value;
}

// `to`: null, unless it copies.
template <bool copies>
__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t fold_all(std::byte* to, Bytes bytes,
                                                                       uint32_t crc) {
    const __m512i past_four = _mm512_broadcast_i32x4(
        _mm_set_epi64x(further_by(8 * folded_bytes), further_by(8 * folded_bytes + 64)));
    const __m512i past_one = _mm512_broadcast_i32x4(
        _mm_set_epi64x(further_by(8 * register_bytes), further_by(8 * register_bytes + 64)));
    const std::byte* p = bytes.data();
    __m512i a = taken<copies>(p, to, 0), b = taken<copies>(p, to, 64);
    __m512i c = taken<copies>(p, to, 128), d = taken<copies>(p, to, 192);
    a = _mm512_xor_si512(a, _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
    size_t at = folded_bytes;
    for (; bytes.size() - at >= folded_bytes; at += folded_bytes) {
        a = fold(a, past_four, taken<copies>(p, to, at));
        b = fold(b, past_four, taken<copies>(p, to, at + 64));
        c = fold(c, past_four, taken<copies>(p, to, at + 128));
        d = fold(d, past_four, taken<copies>(p, to, at + 192));
    }
    d = fold(fold(fold(a, past_one, b), past_one, c), past_one, d);
    for (; bytes.size() - at >= register_bytes; at += register_bytes)
        d = fold(d, past_one, taken<copies>(p, to, at));
    std::array<std::byte, register_bytes> last;
    _mm512_storeu_si512(last.data(), d);
    Bytes rest = bytes.subspan(at);
    if constexpr (copies) {
        if (!rest.empty()) std::memcpy(to + at, rest.data(), rest.size());
        rest = {to + at, rest.size()};
    }
    return by_instruction(rest, by_instruction(last, 0));
}

uint32_t by_folding(Bytes bytes, uint32_t crc) {
    return bytes.size() < folded_bytes ? by_instruction(bytes, crc) : fold_all<false>(nullptr, bytes, crc);
}
#endif

// In pieces that are in the processor's first cache until they are summed, as long as three lanes.
template <Crc32c way>
uint32_t copied_first(std::byte* to, Bytes from, uint32_t crc) {
    constexpr size_t piece_max = 6 * 1024;
    for (size_t at = 0; at < from.size(); at += piece_max) {
        const Bytes piece = from.subspan(at, std::min(piece_max, from.size() - at));
        std::memcpy(to + at, piece.data(), piece.size());
        crc = way({to + at, piece.size()}, crc);
    }
    return crc;
}

#if defined(__x86_64__)
uint32_t folded_copy(std::byte* to, Bytes from, uint32_t crc) {
    return from.size() < folded_bytes ? copied_first<by_instruction>(to, from, crc)
                                      : fold_all<true>(to, from, crc);
}

bool has_instruction() {
    return __builtin_cpu_supports("sse4.2") != 0;
}
bool folds() {
    return has_instruction() && __builtin_cpu_supports("avx512f") != 0 &&
           __builtin_cpu_supports("vpclmulqdq") != 0;
}
#endif

}  // namespace

std::vector<Crc32c> crc32c_ways() {
    std::vector<Crc32c> out;
#if defined(__x86_64__)
    if (folds()) out.push_back(by_folding);
    if (has_instruction()) out.push_back(by_instruction);
#endif
    out.push_back(portable);
    return out;
}

std::vector<Crc32cCopy> crc32c_copy_ways() {
    std::vector<Crc32cCopy> out;
#if defined(__x86_64__)
    if (folds()) out.push_back(folded_copy);
    if (has_instruction()) out.push_back(copied_first<by_instruction>);
#endif
    out.push_back(copied_first<portable>);
    return out;
}

uint32_t crc32c(Bytes bytes, uint32_t crc) {
    static const Crc32c fastest = crc32c_ways().front();
    return ~fastest(bytes, ~crc);
}

uint32_t crc32c_copy(std::byte* to, Bytes from, uint32_t crc) {
    static const Crc32cCopy fastest = crc32c_copy_ways().front();
    return ~fastest(to, from, ~crc);
}

}  // namespace nexar::tcp
