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

// Every collective of proto/operations.def.
inline constexpr auto collective_kinds = [] {
    std::array<OpKind,
               static_cast<size_t>(std::ranges::count(operation_table::rows, true, &OpRow::collective))>
        out{};
    size_t n = 0;
    for (const OpRow& row : operation_table::rows)
        if (row.collective) out[n++] = row.kind;
    return out;
}();
inline uint64_t count_for(OpKind kind, uint64_t count) {
    return row_of(kind).has_elements ? count : 0;
}

struct Reference {
    static bool is_float(Dtype d) {
        return d == Dtype::f32 || d == Dtype::f64 || d == Dtype::f16 || d == Dtype::bf16;
    }
    static bool is_signed(Dtype d) {
        return d == Dtype::i8 || d == Dtype::i16 || d == Dtype::i32 || d == Dtype::i64;
    }
    static size_t width(Dtype d) {
        switch (d) {
            case Dtype::i8:
            case Dtype::u8:
                return 1;
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
            case Dtype::f32:
                return std::ldexp(1.0, -23);
            default:
                return std::ldexp(1.0, -52);
        }
    }

    static uint64_t load(const std::byte* p, Dtype d) {
        uint64_t v = 0;
        std::memcpy(&v, p, width(d));
        return v;
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
            default:
                return width(d) == 8 ? bits : bits & ((uint64_t{1} << (8 * width(d))) - 1);
        }
    }
    static std::vector<std::byte> input(uint64_t salt, uint32_t rank, uint64_t count, Dtype d) {
        std::vector<std::byte> out(count * width(d));
        for (uint64_t i = 0; i < count; ++i) {
            const uint64_t v = element(salt, rank, i, d);
            std::memcpy(out.data() + i * width(d), &v, width(d));
        }
        return out;
    }

    // Whether `got` is the reduction over `size` ranks at position i of their inputs.
    static bool reduced(uint64_t got, uint64_t salt, uint32_t size, uint64_t i, Dtype d, ReduceOp op) {
        return is_float(d) ? reduced_float(got, salt, size, i, d, op)
                           : got == reduced_int(salt, size, i, d, op);
    }

  private:
    static uint64_t reduced_int(uint64_t salt, uint32_t size, uint64_t i, Dtype d, ReduceOp op) {
        const uint64_t mask = width(d) == 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * width(d))) - 1;
        uint64_t acc = element(salt, 0, i, d);
        for (uint32_t r = 1; r < size; ++r) {
            const uint64_t v = element(salt, r, i, d);
            const bool less = is_signed(d) ? as_signed(v, d) < as_signed(acc, d) : v < acc;
            switch (op) {
                case ReduceOp::sum:
                case ReduceOp::avg:
                    acc = (acc + v) & mask;
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
            }
        }
        if (op != ReduceOp::avg) return acc;
        if (!is_signed(d)) return acc / size;
        return static_cast<uint64_t>(as_signed(acc, d) / static_cast<int64_t>(size)) & mask;
    }
    static bool reduced_float(uint64_t got, uint64_t salt, uint32_t size, uint64_t i, Dtype d, ReduceOp op) {
        long double acc = as_double(element(salt, 0, i, d), d), magnitude = std::fabs(acc);
        for (uint32_t r = 1; r < size; ++r) {
            const long double v = as_double(element(salt, r, i, d), d);
            switch (op) {
                case ReduceOp::sum:
                case ReduceOp::avg:
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
