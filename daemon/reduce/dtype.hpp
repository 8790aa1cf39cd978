// Element types and reduction operators: their numbers on the wire and in the C ABI, sizes and names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace nexar::reduce {

// The numbers are part of the wire format: never renumber. 12 (bool) and 13 up (fp8) are kept free.
enum class Dtype : uint8_t {
    f32 = 0,
    f64 = 1,
    f16 = 2,
    bf16 = 3,
    i8 = 4,
    i32 = 5,
    i64 = 6,
    u8 = 7,
    u32 = 8,
    u64 = 9,
    i16 = 10,
    u16 = 11,
};
inline constexpr int dtype_count = 12;

enum class ReduceOp : uint8_t { sum = 0, prod = 1, min = 2, max = 3, avg = 4 };
inline constexpr int reduce_op_count = 5;

// Nothing: the number, which a client or a peer sent, names no type.
std::optional<Dtype> dtype_from(int code);
std::optional<ReduceOp> reduce_op_from(int code);

// Bytes of one element: 1, 2, 4 or 8; of a number that names no type 1.
size_t size_of(Dtype dtype);

// "f32", "bf16", ... and "sum", "avg", ...; "unknown type" and "unknown operator" of other numbers.
std::string_view name_of(Dtype dtype);
std::string_view name_of(ReduceOp op);

}  // namespace nexar::reduce
