// Element-wise reduction of buffers: the arithmetic of every collective, in the daemon and in libnexar_c.
// The same bytes in give the same bytes out on every CPU, whatever its vector width, and at every
// position of a buffer:
//  - f16, bf16 and the 8-bit floats are widened to f32, combined, and rounded once, to nearest even;
//  subnormals
//    are exact. What passes the largest number becomes infinity; of f8e4m3fn, which has none, NaN.
//  - A NaN among the inputs, or inf - inf, gives the type's one quiet NaN: f32 0x7fc00000,
//    f64 0x7ff8000000000000, f16 0x7e00, bf16 0x7fc0, f8e4m3fn 0x7f, f8e5m2 0x7e. This holds for min and max
//    too.
//  - min and max order the zeros: -0 < +0.
//  - Integers wrap modulo 2^bits.
//  - Logical operators, and all those of bool: anything but 0 is true, results are 0 and 1. Of bool, min is
//  "and",
//    max is "or".
//  - minloc and maxloc take the pair with the least (greatest) value; at equal values, which -0 and +0 are,
//  that with
//    the lowest index; and at equal indices minloc takes -0, maxloc +0. A NaN is before all numbers.
//  - The caller's rounding mode and flush-to-zero bits are set aside for the duration of a call.
//
// Buffers may lie at any address, aligned or not, and may be memory that another process is writing to:
// then the result is unspecified, but nothing else happens. Any thread may call anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reduce/dtype.hpp"

namespace nexar::reduce {

// dst = dst op src. avg and premul_sum sum; see finish_avg, premul_sum. dst and src must not overlap. A type
// that does not have the operator (may_reduce): dst is left alone, here and below.
void reduce_into(void* dst, const void* src, size_t count, Dtype dtype, ReduceOp op);

// dst = srcs[0] op srcs[1] op ..., from left to right, in one pass. Sums and products of f16 and bf16 stay in
// f32 over all sources and are rounded once. dst may be one of srcs; any other overlap is forbidden. No
// sources: dst is left alone.
void reduce_many(void* dst, std::span<const void* const> srcs, size_t count, Dtype dtype, ReduceOp op);

// The same, the result stored to every one of dsts while it is in registers. Each dst may be one of srcs.
void reduce_many_to(std::span<void* const> dsts, std::span<const void* const> srcs, size_t count, Dtype dtype,
                    ReduceOp op);

// dsts = srcs[0] * scalars[0] + srcs[1] * scalars[1] + ...: each product is rounded to the type, as if its
// owner had computed it before; then they are summed as reduce_many_to does. A scalar's first bytes are one
// element. As many scalars as sources, at least one.
void premul_sum(std::span<void* const> dsts, std::span<const void* const> srcs,
                std::span<const uint64_t> scalars, size_t count, Dtype dtype);

// Ends an avg: divides each element once by `divisor`. Floats below 32 bits are widened, divided as f32,
// rounded; floats divide by the divisor as rounded to f32 (f64: to f64). Integers truncate towards zero. 0
// counts as 1.
void finish_avg(void* data, size_t count, Dtype dtype, uint64_t divisor);

// dst = what changes no value that it is combined with: 0 of a sum (+0), also of premul_sum; 1 of a product;
// the largest value, infinity where there is one, of a min, the lowest of a max, and with the largest index
// of minloc and maxloc; all bits of band; true of land; 0 of bor, bxor, lor, lxor. bool has 0 and 1. avg: dst
// is left alone.
void fill_identity(void* dst, size_t count, Dtype dtype, ReduceOp op);

// Conversions of `count` elements; any alignment, no overlap. NaNs become the target's one quiet NaN.
void f16_to_f32(void* f32, const void* f16, size_t count);
void bf16_to_f32(void* f32, const void* bf16, size_t count);
void f32_to_f16(void* f16, const void* f32, size_t count);
void f32_to_bf16(void* bf16, const void* f32, size_t count);

}  // namespace nexar::reduce
