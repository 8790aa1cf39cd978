// What the kernels must compute, one element at a time and by other means: numbers are taken apart and put
// together with frexp and ldexp in double, doubles are combined in 128-bit floating point, integers in
// 128-bit integers.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "reduce/dtype.hpp"
#include "reduce/kernels.hpp"

namespace nexar::reduce::test {

// An element's bits, zero-extended.
using Bits = uint64_t;
using Elements = std::vector<Bits>;
// Compared inside double parentheses: a thousand bytes in a failure message help nobody.
using Buffer = std::vector<unsigned char>;

// Numbers; bool and the pairs have tests of their own.
inline constexpr std::array all_dtypes{Dtype::f32, Dtype::f64, Dtype::f16,      Dtype::bf16,  Dtype::i8,
                                       Dtype::i32, Dtype::i64, Dtype::u8,       Dtype::u32,   Dtype::u64,
                                       Dtype::i16, Dtype::u16, Dtype::f8e4m3fn, Dtype::f8e5m2};
inline constexpr std::array float_dtypes{Dtype::f32,  Dtype::f64,      Dtype::f16,
                                         Dtype::bf16, Dtype::f8e4m3fn, Dtype::f8e5m2};
inline constexpr std::array integer_dtypes{Dtype::i8, Dtype::i16, Dtype::i32, Dtype::i64,
                                           Dtype::u8, Dtype::u16, Dtype::u32, Dtype::u64};
// avg reduces as sum does and has its own tests.
inline constexpr std::array plain_ops{ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max};

struct FloatFormat {
    int exponent_bits, fraction_bits;
    Bits nan;
    bool finite = false;  // without infinities: all ones is the one NaN
    Bits sign() const { return Bits{1} << (exponent_bits + fraction_bits); }
    // What follows the largest number: a finite format's NaN.
    Bits infinity() const { return finite ? nan : ((Bits{1} << exponent_bits) - 1) << fraction_bits; }
    // Negative, and signalling where there is such a thing.
    Bits other_nan() const { return sign() | (finite ? nan : infinity() + 1); }
};

bool is_float(Dtype dtype);
FloatFormat format_of(Dtype dtype);

// Exact for every format here.
double decode(FloatFormat format, Bits bits);
// To nearest even; NaN to the one NaN.
Bits encode(FloatFormat format, double value);

// The elements one after the other, as reduce_many promises.
Bits fold(Dtype dtype, ReduceOp op, std::span<const Bits> elements);
Bits divide(Dtype dtype, Bits element, uint64_t divisor);

// A mix of arbitrary bit patterns, numbers of similar size, and all the special ones. Differs by seed and
// position.
Elements make_elements(Dtype dtype, size_t count, uint64_t seed);

// Elements laid out `offset` bytes into a buffer, with `guard` on both sides.
inline constexpr unsigned char guard = 0xa5;
Buffer lay_out(Dtype dtype, std::span<const Bits> elements, size_t offset);
Bits element_at(Dtype dtype, const Buffer& buffer, size_t offset, size_t index);

// Runs `body` once for each instruction set that this CPU has, with the kernels chosen.
void on_every_target(const std::function<void(const Kernels&)>& body);

uint64_t splitmix(uint64_t& state);

}  // namespace nexar::reduce::test
