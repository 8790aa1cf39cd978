// The tables behind dtype.hpp.
#include "reduce/dtype.hpp"

#include <array>
#include <utility>

namespace nexar::reduce {
namespace {

struct Entry {
    std::string_view name;
    size_t bytes;
};

constexpr std::array<Entry, dtype_count> dtypes{{
    {"f32", 4},
    {"f64", 8},
    {"f16", 2},
    {"bf16", 2},
    {"i8", 1},
    {"i32", 4},
    {"i64", 8},
    {"u8", 1},
    {"u32", 4},
    {"u64", 8},
    {"i16", 2},
    {"u16", 2},
}};
constexpr std::array<std::string_view, reduce_op_count> ops{"sum", "prod", "min", "max", "avg"};

// Defined for every number: numbers come from clients and peers, and error texts name unknown ones.
constexpr Entry entry_of(Dtype dtype) {
    const size_t index = std::to_underlying(dtype);
    return index < dtypes.size() ? dtypes[index] : Entry{"unknown type", 1};
}

}  // namespace

std::optional<Dtype> dtype_from(int code) {
    if (code < 0 || code >= dtype_count) return std::nullopt;
    return static_cast<Dtype>(code);
}

std::optional<ReduceOp> reduce_op_from(int code) {
    if (code < 0 || code >= reduce_op_count) return std::nullopt;
    return static_cast<ReduceOp>(code);
}

size_t size_of(Dtype dtype) {
    return entry_of(dtype).bytes;
}
std::string_view name_of(Dtype dtype) {
    return entry_of(dtype).name;
}
std::string_view name_of(ReduceOp op) {
    const size_t index = std::to_underlying(op);
    return index < ops.size() ? ops[index] : "unknown operator";
}

}  // namespace nexar::reduce
