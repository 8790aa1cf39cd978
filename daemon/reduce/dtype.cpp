// See dtype.hpp.
#include "reduce/dtype.hpp"

#include <utility>

namespace nexar::reduce {
namespace {

// Defined for every number: numbers come from clients and peers, and error texts name unknown ones.
constexpr TypeRow entry_of(Dtype dtype) {
    const TypeRow* row = find_type(std::to_underlying(dtype));
    return row != nullptr ? *row : TypeRow{0, "unknown type", "", 1, 1, TypeFamily::integer};
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
size_t align_of(Dtype dtype) {
    return entry_of(dtype).align;
}
std::string_view name_of(Dtype dtype) {
    return entry_of(dtype).name;
}
std::string_view name_of(ReduceOp op) {
    const ReductionRow* row = find_reduction(std::to_underlying(op));
    return row != nullptr ? row->name : "unknown operator";
}

}  // namespace nexar::reduce
