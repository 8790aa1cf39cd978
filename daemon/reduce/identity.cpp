// fill_identity: the neutral element of each reduction.
#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <type_traits>

#include "reduce/reduce.hpp"

namespace nexar::reduce {
namespace {

using Element = std::array<std::byte, 16>;  // the first size_of(dtype) bytes

template <class... Parts>
Element element_of(Parts... parts) {
    Element out{};
    size_t at = 0;
    ((std::memcpy(out.data() + at, &parts, sizeof parts), at += sizeof parts), ...);
    return out;
}

// A floating type by its bits: 1, and its largest value, infinity where it has one.
template <class Bits>
Element floating(ReduceOp op, Bits one, Bits largest) {
    constexpr Bits sign = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    switch (op) {
        case ReduceOp::prod:
            return element_of(one);
        case ReduceOp::min:
            return element_of(largest);
        case ReduceOp::max:
            return element_of(static_cast<Bits>(largest | sign));
        default:
            return {};
    }
}

template <class T>
Element integer(ReduceOp op) {
    switch (op) {
        case ReduceOp::prod:
        case ReduceOp::land:
            return element_of(T{1});
        case ReduceOp::min:
            return element_of(std::numeric_limits<T>::max());
        case ReduceOp::max:
            return element_of(std::numeric_limits<T>::lowest());
        case ReduceOp::band:
            return element_of(static_cast<T>(~T{0}));
        default:
            return {};
    }
}

Element truth(ReduceOp op) {
    const bool is_and = op == ReduceOp::min || op == ReduceOp::band || op == ReduceOp::land;
    return element_of(uint8_t{is_and});
}

// At equal values the lowest index wins, so the largest one never does.
template <class Value, class Index>
Element pair(ReduceOp op) {
    using Limits = std::numeric_limits<Value>;
    Value largest = Limits::max(), lowest = Limits::lowest();
    if constexpr (Limits::has_infinity) largest = Limits::infinity(), lowest = -Limits::infinity();
    return element_of(op == ReduceOp::minloc ? largest : lowest, std::numeric_limits<Index>::max());
}

Element identity_of(Dtype dtype, ReduceOp op) {
    switch (dtype) {
        case Dtype::f32:
            return floating<uint32_t>(op, 0x3f80'0000, 0x7f80'0000);
        case Dtype::f64:
            return floating<uint64_t>(op, 0x3ff0'0000'0000'0000, 0x7ff0'0000'0000'0000);
        case Dtype::f16:
            return floating<uint16_t>(op, 0x3c00, 0x7c00);
        case Dtype::bf16:
            return floating<uint16_t>(op, 0x3f80, 0x7f80);
        case Dtype::f8e4m3fn:
            return floating<uint8_t>(op, 0x38, 0x7e);  // 448: no infinity
        case Dtype::f8e5m2:
            return floating<uint8_t>(op, 0x3c, 0x7c);
        case Dtype::i8:
            return integer<int8_t>(op);
        case Dtype::i16:
            return integer<int16_t>(op);
        case Dtype::i32:
            return integer<int32_t>(op);
        case Dtype::i64:
            return integer<int64_t>(op);
        case Dtype::u8:
            return integer<uint8_t>(op);
        case Dtype::u16:
            return integer<uint16_t>(op);
        case Dtype::u32:
            return integer<uint32_t>(op);
        case Dtype::u64:
            return integer<uint64_t>(op);
        case Dtype::boolean:
            return truth(op);
        case Dtype::f32_i32:
            return pair<float, int32_t>(op);
        case Dtype::f64_i64:
            return pair<double, int64_t>(op);
        case Dtype::i32_i32:
            return pair<int32_t, int32_t>(op);
        case Dtype::i64_i64:
            return pair<int64_t, int64_t>(op);
    }
    return {};
}

}  // namespace

void fill_identity(void* dst, size_t count, Dtype dtype, ReduceOp op) {
    if (!may_reduce(dtype, op) || has_form(op, ReductionForm::average) || count == 0) return;
    const size_t element = size_of(dtype), bytes = count * element;
    auto* const to = static_cast<std::byte*>(dst);
    std::memcpy(to, identity_of(dtype, op).data(), element);
    for (size_t have = element; have < bytes; have *= 2)
        std::memcpy(to + have, to, std::min(have, bytes - have));
}

}  // namespace nexar::reduce
