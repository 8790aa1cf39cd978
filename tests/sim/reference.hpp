// What a collective must give, computed without any of the production code: data that differs per rank and
// position, integers modulo 2^bits, floats as doubles with a bound.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/random.hpp"
#include "engine/ports.hpp"

namespace nexar::sim {

using engine::OpDescriptor;
using engine::OpKind;

constexpr bool is_uniform(const OpRow& row) {
    return row.collective && !row.makes_groups;
}
// Every collective of proto/operations.def, but those that make groups (children.hpp).
inline constexpr auto collective_kinds = [] {
    std::array<OpKind, static_cast<size_t>(std::ranges::count_if(operation_table::rows, is_uniform))> out{};
    size_t n = 0;
    for (const OpRow& row : operation_table::rows)
        if (is_uniform(row)) out[n++] = row.kind;
    return out;
}();
inline uint64_t count_for(OpKind kind, uint64_t count) {
    return row_of(kind).has_elements ? count : 0;
}

struct Reference {
    // `total` elements shared out unevenly: some ranks have none, some much; the same list for the same
    // numbers.
    static CountsRef counts(uint64_t total, uint32_t size) {
        Random random(total * 31 + size);
        std::vector<uint64_t> out(size), weights(size);
        uint64_t sum = 0, left = total;
        for (uint64_t& weight : weights) sum += weight = random.one_in(4) ? 0 : 1 + random.below(9);
        for (uint32_t rank = 0; rank + 1 < size; ++rank) {
            out[rank] = sum == 0 ? 0 : std::min(left, total * weights[rank] / sum);
            left -= out[rank];
        }
        out.back() = left;
        return std::make_shared<const Counts>(*Counts::of(out));
    }
    // What rank `from` sends to rank `to`: often nothing, sometimes all that there is.
    static uint64_t sent(uint64_t total, uint32_t size, uint32_t from, uint32_t to) {
        Random random(total * 31 + size + from * 1'000'003ull + to * 7919ull);
        const uint64_t choices[] = {0, random.below(total / size + 1), total / size, total};
        return choices[random.below(4)];
    }
    static std::vector<Counts> sends(const OpDescriptor& d, uint32_t size) {
        std::vector<Counts> out;
        for (uint32_t rank = 0; rank < size && has_own_counts(row_of(d.kind)); ++rank)
            out.push_back(own_counts(d, size, rank)->sends);
        return out;
    }
    // Null: the operation has none. A test's `count` is how much is exchanged; the operation's own is 0.
    static OwnCountsRef own_counts(const OpDescriptor& d, uint32_t size, uint32_t rank) {
        if (!has_own_counts(row_of(d.kind))) return nullptr;
        std::vector<uint64_t> sends, receives;
        for (uint32_t other = 0; other < size; ++other) {
            sends.push_back(sent(d.count, size, rank, other));
            receives.push_back(sent(d.count, size, other, rank));
        }
        return std::make_shared<const OwnCounts>(*Counts::of(sends), *Counts::of(receives));
    }
    static CountsRef counts(const OpDescriptor& d, uint32_t size) {
        return has_counts(row_of(d.kind)) ? counts(d.count, size) : nullptr;
    }
    static bool is_float(Dtype d) {
        return d == Dtype::f32 || d == Dtype::f64 || d == Dtype::f16 || d == Dtype::bf16 || is_f8(d);
    }
    static bool is_f8(Dtype d) { return d == Dtype::f8e4m3fn || d == Dtype::f8e5m2; }
    static bool is_pair(Dtype d) { return d == Dtype::f32_i32 || d == Dtype::i32_i32 || is_wide_pair(d); }
    static bool is_wide_pair(Dtype d) { return d == Dtype::f64_i64 || d == Dtype::i64_i64; }
    static bool is_float_pair(Dtype d) { return d == Dtype::f32_i32 || d == Dtype::f64_i64; }
    // Of those whose elements have at most 8 bytes, a type and one of its reductions.
    static void draw(Random& random, OpDescriptor& d) {
        do {
            d.dtype = static_cast<Dtype>(random.below(static_cast<uint64_t>(reduce::dtype_count)));
        } while (width(d.dtype) > 8);
        do {
            d.op = static_cast<ReduceOp>(random.below(static_cast<uint64_t>(reduce::reduce_op_count)));
        } while (!may(d.kind, d.dtype, d.op));
    }
    // Rank 0 of an exclusive scan has no ranks to divide by.
    static bool may(OpKind kind, Dtype dtype, ReduceOp op) {
        return reduce::may_reduce(dtype, op) && (kind != OpKind::exclusive_scan || op != ReduceOp::avg);
    }
    // What an exclusive scan gives rank 0: written down bit by bit, of types of at most 8 bytes.
    static uint64_t identity(Dtype d, ReduceOp op) {
        const size_t bits = 8 * width(d);
        const uint64_t ones = bits == 64 ? UINT64_MAX : (uint64_t{1} << bits) - 1,
                       top = uint64_t{1} << (bits - 1);
        if (d == Dtype::boolean)
            return op == ReduceOp::min || op == ReduceOp::band || op == ReduceOp::land ? 1 : 0;
        if (d == Dtype::f32_i32)
            return 0x7fff'ffff'0000'0000 | (op == ReduceOp::minloc ? 0x7f80'0000 : 0xff80'0000);
        if (d == Dtype::i32_i32)
            return 0x7fff'ffff'0000'0000 | (op == ReduceOp::minloc ? 0x7fff'ffff : 0x8000'0000);
        const auto of_float = [&](uint64_t one, uint64_t infinity) {
            if (op == ReduceOp::prod) return one;
            if (op == ReduceOp::min) return infinity;
            return op == ReduceOp::max ? infinity | top : 0;
        };
        if (d == Dtype::f64) return of_float(0x3ff0'0000'0000'0000, 0x7ff0'0000'0000'0000);
        if (d == Dtype::f32) return of_float(0x3f80'0000, 0x7f80'0000);
        if (d == Dtype::f16) return of_float(0x3c00, 0x7c00);
        if (d == Dtype::bf16) return of_float(0x3f80, 0x7f80);
        if (d == Dtype::f8e4m3fn) return of_float(0x38, 0x7e);
        if (d == Dtype::f8e5m2) return of_float(0x3c, 0x7c);
        if (op == ReduceOp::prod || op == ReduceOp::land) return 1;
        if (op == ReduceOp::min) return is_signed(d) ? ones >> 1 : ones;
        if (op == ReduceOp::max) return is_signed(d) ? top : 0;
        return op == ReduceOp::band ? ones : 0;
    }
    static bool is_signed(Dtype d) {
        return d == Dtype::i8 || d == Dtype::i16 || d == Dtype::i32 || d == Dtype::i64;
    }
    static size_t width(Dtype d) {
        switch (d) {
            case Dtype::i8:
            case Dtype::u8:
            case Dtype::boolean:
            case Dtype::f8e4m3fn:
            case Dtype::f8e5m2:
                return 1;
            case Dtype::f64_i64:
            case Dtype::i64_i64:
                return 16;
            case Dtype::f16:
            case Dtype::bf16:
            case Dtype::i16:
            case Dtype::u16:
                return 2;
            case Dtype::f32:
            case Dtype::i32:
            case Dtype::u32:
                return 4;
            default:
                return 8;
        }
    }
    // Unit in the last place relative to 1.
    static double epsilon(Dtype d) {
        switch (d) {
            case Dtype::f16:
                return std::ldexp(1.0, -10);
            case Dtype::bf16:
                return std::ldexp(1.0, -7);
            case Dtype::f8e4m3fn:
                return std::ldexp(1.0, -3);
            case Dtype::f8e5m2:
                return std::ldexp(1.0, -2);
            case Dtype::f32:
                return std::ldexp(1.0, -23);
            default:
                return std::ldexp(1.0, -52);
        }
    }

    // Of 16 bytes: as the pair of half its width that has the same numbers; all ones: none has.
    static uint64_t load(const std::byte* p, Dtype d) {
        uint64_t v = 0;
        if (is_wide_pair(d)) {
            std::memcpy(&v, p, sizeof v);
            int64_t index = 0;
            std::memcpy(&index, p + sizeof v, sizeof index);
            const uint32_t low = d == Dtype::f64_i64
                                     ? std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(v)))
                                     : static_cast<uint32_t>(v);
            const bool fits = index == static_cast<int32_t>(index) && wide_value(low, d) == v;
            return fits ? static_cast<uint64_t>(index) << 32 | low : ~uint64_t{0};
        }
        std::memcpy(&v, p, width(d));
        return v;
    }
    static uint64_t wide_value(uint32_t low, Dtype d) {
        if (d == Dtype::f64_i64) return std::bit_cast<uint64_t>(double{std::bit_cast<float>(low)});
        return static_cast<uint64_t>(int64_t{static_cast<int32_t>(low)});
    }
    static int64_t as_signed(uint64_t v, Dtype d) {
        const int shift = 64 - 8 * static_cast<int>(width(d));
        return static_cast<int64_t>(v << shift) >> shift;
    }
    static double as_double(uint64_t v, Dtype d) {
        switch (d) {
            case Dtype::f64:
                return std::bit_cast<double>(v);
            case Dtype::f32:
                return std::bit_cast<float>(static_cast<uint32_t>(v));
            case Dtype::bf16:
                return std::bit_cast<float>(static_cast<uint32_t>(v) << 16);
            default:
                break;
        }
        if (d == Dtype::f8e5m2) v <<= 8;  // an f16 whose last bits are zero
        if (d == Dtype::f8e4m3fn) {
            const int power = static_cast<int>(v >> 3 & 15);
            const double places = static_cast<double>(v & 7) + (power == 0 ? 0 : 8);
            const double value = std::ldexp(places, std::max(power, 1) - 10);
            return (v & 0x80) != 0 ? -value : value;
        }
        const int exponent = static_cast<int>(v >> 10 & 31);
        const double mantissa = static_cast<double>(v & 1023);
        const double magnitude =
            exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
        return (v & 0x8000) != 0 ? -magnitude : magnitude;
    }

    // Element i of rank r. Floats of moderate size (0.5 .. 2), so that products of 17 of them stay finite.
    static uint64_t element(uint64_t salt, uint32_t rank, uint64_t i, Dtype d) {
        Random random(salt * 0x9e3779b97f4a7c15u + rank * 1'000'003ull + i * 7919 + 1);
        const uint64_t bits = random.next();
        switch (d) {
            case Dtype::f64:
                return (bits & 0x801f'ffff'ffff'ffff) | 0x3fe0'0000'0000'0000;
            case Dtype::f32:
                return (bits & 0x8000'0000) | 0x3f00'0000 | (bits & 0xff'ffff);
            case Dtype::f16:
                return (bits & 0x8000) | 0x3800 | (bits & 0x7ff);
            case Dtype::bf16:
                return (bits & 0x8000) | 0x3f00 | (bits & 0xff);
            // Nearer to 1: the largest f8e4m3fn is 448.
            case Dtype::f8e4m3fn:
                return (bits & 0x80) | 0x38 | (bits >> 8) % 3;
            case Dtype::f8e5m2:
                return (bits & 0x80) | 0x3c | (bits & 1);
            case Dtype::boolean:
                return bits % 4;
            // Few values, so that the index decides.
            case Dtype::f32_i32:
            case Dtype::f64_i64:  // as load() gives it
                return uint64_t{rank} << 32 | std::bit_cast<uint32_t>(static_cast<float>(bits % 3) - 1);
            case Dtype::i32_i32:
            case Dtype::i64_i64:
                return uint64_t{rank} << 32 | (bits % 3 - 1 & 0xffff'ffff);
            default:
                return width(d) == 8 ? bits : bits & ((uint64_t{1} << (8 * width(d))) - 1);
        }
    }
    static std::vector<std::byte> input(uint64_t salt, uint32_t rank, uint64_t count, Dtype d) {
        std::vector<std::byte> out(count * width(d));
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t v = element(salt, rank, i, d);
            const uint64_t wide[] = {wide_value(static_cast<uint32_t>(v), d), v >> 32};
            std::memcpy(out.data() + i * width(d), is_wide_pair(d) ? wide : &v, width(d));
        }
        return out;
    }

    // What premul_sum multiplies a rank's values by: exact in floats.
    static uint64_t scalar(uint32_t rank, Dtype d) {
        if (!is_float(d)) return 2 * rank + 3;
        const uint64_t halves[] = {0x3f000000, 0x3fe0'0000'0000'0000, 0x3800, 0x3f00};
        const uint64_t ones[] = {0x3f800000, 0x3ff0'0000'0000'0000, 0x3c00, 0x3f80};
        if (d == Dtype::f8e4m3fn) return rank % 2 == 0 ? 0x30 : 0x38;
        if (d == Dtype::f8e5m2) return rank % 2 == 0 ? 0x38 : 0x3c;
        return (rank % 2 == 0 ? halves : ones)[static_cast<size_t>(d)];
    }

    // Whether `got` is the reduction over `size` ranks at position i of their inputs.
    static bool reduced(uint64_t got, uint64_t salt, uint32_t size, uint64_t i, Dtype d, ReduceOp op) {
        if (size == 1 && op != ReduceOp::premul_sum) return got == truth(element(salt, 0, i, d), d, op);
        if (is_pair(d)) return got == reduced_pair(salt, size, i, d, op);
        return is_float(d) ? reduced_float(got, salt, size, i, d, op)
                           : got == reduced_int(salt, size, i, d, op);
    }

  private:
    // Ranks are in the order of their indices, so the first one keeps its place.
    static uint64_t reduced_pair(uint64_t salt, uint32_t size, uint64_t i, Dtype d, ReduceOp op) {
        const auto value = [d](uint64_t v) {
            const auto low = static_cast<uint32_t>(v);
            return is_float_pair(d) ? double{std::bit_cast<float>(low)}
                                    : static_cast<double>(static_cast<int32_t>(low));
        };
        uint64_t best = element(salt, 0, i, d);
        for (uint32_t r = 1; r < size; ++r) {
            const uint64_t v = element(salt, r, i, d);
            if (op == ReduceOp::minloc ? value(v) < value(best) : value(v) > value(best)) best = v;
        }
        return best;
    }
    static uint64_t truth(uint64_t v, Dtype d, ReduceOp op) {
        const bool logical =
            d == Dtype::boolean || op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor;
        return logical ? uint64_t{v != 0} : v;
    }
    static uint64_t reduced_int(uint64_t salt, uint32_t size, uint64_t i, Dtype d, ReduceOp op) {
        const uint64_t mask = width(d) == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * width(d))) - 1;
        const auto given = [&](uint32_t rank) {
            const uint64_t v = truth(element(salt, rank, i, d), d, op);
            return op == ReduceOp::premul_sum ? v * scalar(rank, d) & mask : v;
        };
        uint64_t acc = given(0);
        for (uint32_t r = 1; r < size; ++r) {
            const uint64_t v = given(r);
            const bool less = is_signed(d) ? as_signed(v, d) < as_signed(acc, d) : v < acc;
            switch (op) {
                case ReduceOp::sum:
                case ReduceOp::avg:
                case ReduceOp::premul_sum:
                    acc = (acc + v) & mask;
                    break;
                case ReduceOp::band:
                case ReduceOp::land:
                    acc &= v;
                    break;
                case ReduceOp::bor:
                case ReduceOp::lor:
                    acc |= v;
                    break;
                case ReduceOp::bxor:
                case ReduceOp::lxor:
                    acc ^= v;
                    break;
                case ReduceOp::prod:
                    acc = (acc * v) & mask;
                    break;
                case ReduceOp::min:
                    acc = less ? v : acc;
                    break;
                case ReduceOp::max:
                    acc = less ? acc : v;
                    break;
                default:
                    break;
            }
        }
        if (op != ReduceOp::avg) return acc;
        if (!is_signed(d)) return acc / size;
        return static_cast<uint64_t>(as_signed(acc, d) / static_cast<int64_t>(size)) & mask;
    }
    static bool reduced_float(uint64_t got, uint64_t salt, uint32_t size, uint64_t i, Dtype d, ReduceOp op) {
        const auto given = [&](uint32_t rank) -> long double {
            const double v = as_double(element(salt, rank, i, d), d);
            return op == ReduceOp::premul_sum ? v * as_double(scalar(rank, d), d) : v;
        };
        long double acc = given(0), magnitude = std::fabs(acc);
        for (uint32_t r = 1; r < size; ++r) {
            const long double v = given(r);
            switch (op) {
                case ReduceOp::sum:
                case ReduceOp::avg:
                case ReduceOp::premul_sum:
                    acc += v, magnitude += std::fabs(v);
                    break;
                case ReduceOp::prod:
                    acc *= v, magnitude *= std::fabs(v);
                    break;
                case ReduceOp::min:
                    acc = std::min(acc, v);
                    break;
                case ReduceOp::max:
                    acc = std::max(acc, v);
                    break;
                default:
                    break;
            }
        }
        if (op == ReduceOp::min || op == ReduceOp::max) return as_double(got, d) == static_cast<double>(acc);
        if (op == ReduceOp::avg) acc /= size, magnitude /= size;
        // A rounding per combination, and f16's subnormal spacing for small products.
        const long double bound =
            magnitude * epsilon(d) * (size + 1) + (d == Dtype::f16 ? std::ldexp(1.0L, -23) : 0);
        return std::fabs(as_double(got, d) - acc) <= bound;
    }
};

}  // namespace nexar::sim
