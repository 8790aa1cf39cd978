// Element types and reduction operators: their numbers on the wire and in the C ABI, sizes and names. All of
// it is proto/types.def.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/types.hpp"

namespace nexar::reduce {

// The numbers are part of the wire format: never renumber.
enum class Dtype : uint8_t {
#define NEXAR_DTYPE(number, name, ...) name = (number),
#include "types.def"
};
inline constexpr int dtype_count = static_cast<int>(type_count);

enum class ReduceOp : uint8_t {
#define NEXAR_REDUCTION(number, name, ...) name = (number),
#include "types.def"
};
inline constexpr int reduce_op_count = static_cast<int>(reduction_count);

// Nothing: the number, which a client or a peer sent, names no type.
std::optional<Dtype> dtype_from(int code);
std::optional<ReduceOp> reduce_op_from(int code);

constexpr bool may_reduce(Dtype dtype, ReduceOp op) {
    return nexar::may_reduce(static_cast<uint64_t>(dtype), static_cast<uint64_t>(op));
}

constexpr bool has_form(ReduceOp op, ReductionForm form) {
    return nexar::has_form(static_cast<uint64_t>(op), form);
}
// What two values are combined with: an average and a scaled sum are sums, whatever was done to their values
// before or will be done after.
constexpr ReduceOp combining(ReduceOp op) {
    const bool is_sum = has_form(op, ReductionForm::average) || has_form(op, ReductionForm::scaled);
    return is_sum ? ReduceOp::sum : op;
}
// Whether the results are truth values, 0 and 1, whatever the inputs are.
constexpr bool is_logical(Dtype dtype, ReduceOp op) {
    const TypeRow* row = find_type(static_cast<uint64_t>(dtype));
    return (row != nullptr && row->family == TypeFamily::boolean) || has_form(op, ReductionForm::truth);
}

// Bytes of one element: 1, 2, 4, 8 or 16; of a number that names no type 1.
size_t size_of(Dtype dtype);
// What the place of elements in a region is a multiple of: a pair's is that of its value.
size_t align_of(Dtype dtype);

// "f32", "bf16", ... and "sum", "avg", ...; "unknown type" and "unknown operator" of other numbers.
std::string_view name_of(Dtype dtype);
std::string_view name_of(ReduceOp op);

}  // namespace nexar::reduce
