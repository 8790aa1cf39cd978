// Bits, truth values and value-index pairs; see plain.hpp.
#include "reduce/plain.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace nexar::reduce {
namespace {

// All sources of a block are folded before anything of it is stored: a destination may be one of them. The
// copies are aligned, and nobody else writes to them.
template <class T, class Combine>
void run(const Job& job, Combine combine) {
    constexpr size_t block = 4096 / sizeof(T);
    T folded[block], next[block];
    for (size_t at = 0; at < job.bytes; at += sizeof folded) {
        const size_t bytes = std::min(sizeof folded, job.bytes - at), count = bytes / sizeof(T);
        const auto load = [&](T* to, const void* from) {
            std::memcpy(to, static_cast<const std::byte*>(from) + at, bytes);
        };
        load(folded, job.srcs[0]);
        for (size_t i = 0; i < count; ++i) folded[i] = combine.begin(folded[i]);
        for (const void* src : job.srcs.subspan(1)) {
            load(next, src);
            for (size_t i = 0; i < count; ++i) folded[i] = combine.fold(folded[i], combine.begin(next[i]));
        }
        for (void* dst : job.dsts) std::memcpy(static_cast<std::byte*>(dst) + at, folded, bytes);
    }
}

// The operator is a parameter of the type, so that the loops have no branch and the compiler vectorises them.
template <ReduceOp op, class T>
T combined(T a, T b) {
    if constexpr (op == ReduceOp::band) return static_cast<T>(a & b);
    if constexpr (op == ReduceOp::bor) return static_cast<T>(a | b);
    if constexpr (op == ReduceOp::bxor) return static_cast<T>(a ^ b);
}

template <ReduceOp op>
struct Bits {
    uint8_t begin(uint8_t value) const { return value; }
    uint8_t fold(uint8_t a, uint8_t b) const { return combined<op>(a, b); }
};

// Anything but 0 is true; the results are 0 and 1.
template <class T, ReduceOp op>
struct Truth {
    T begin(T value) const { return value != 0; }
    T fold(T a, T b) const { return combined<op>(a, b); }
};

// The operator on bits that does it for 0 and 1: of truth values the least is "and", the greatest "or".
ReduceOp of_bits(ReduceOp op) {
    if (op == ReduceOp::min || op == ReduceOp::land) return ReduceOp::band;
    if (op == ReduceOp::max || op == ReduceOp::lor) return ReduceOp::bor;
    return op == ReduceOp::lxor ? ReduceOp::bxor : op;
}

template <class Value, class Index>
struct Pair {
    Value value;
    Index index;
};

// A total order, so that the result is the same whatever is combined first: a NaN before all numbers; then
// the lesser (greater) value, -0 and +0 being equal; then the lower index; then -0 (+0).
template <class Value, class Index>
struct Locate {
    using P = Pair<Value, Index>;
    bool greatest;

    P begin(P pair) const {
        if constexpr (std::is_floating_point_v<Value>)
            if (std::isnan(pair.value)) pair.value = std::numeric_limits<Value>::quiet_NaN();
        return pair;
    }

    P fold(P a, P b) const { return wins(b, a) ? b : a; }

  private:
    bool wins(const P& a, const P& b) const {
        if constexpr (std::is_floating_point_v<Value>) {
            if (std::isnan(a.value) != std::isnan(b.value)) return std::isnan(a.value);
            if (std::isnan(a.value)) return a.index < b.index;
        }
        if (a.value != b.value) return greatest ? a.value > b.value : a.value < b.value;
        if (a.index != b.index) return a.index < b.index;
        if constexpr (std::is_floating_point_v<Value>)
            return std::signbit(a.value) != std::signbit(b.value) && std::signbit(a.value) != greatest;
        return false;
    }
};

template <class Value, class Index>
void locate(const Job& job, ReduceOp op) {
    static_assert(sizeof(Pair<Value, Index>) == sizeof(Value) + sizeof(Index));
    run<Pair<Value, Index>>(job, Locate<Value, Index>{op == ReduceOp::maxloc});
}

void reduce_pairs(const Job& job, Dtype dtype, ReduceOp op) {
    if (dtype == Dtype::f32_i32) locate<float, int32_t>(job, op);
    if (dtype == Dtype::f64_i64) locate<double, int64_t>(job, op);
    if (dtype == Dtype::i32_i32) locate<int32_t, int32_t>(job, op);
    if (dtype == Dtype::i64_i64) locate<int64_t, int64_t>(job, op);
}

template <ReduceOp op>
void reduce_bits(const Job& job, size_t truth_width) {
    if (truth_width == 0) return run<uint8_t>(job, Bits<op>{});
    if (truth_width == 1) return run<uint8_t>(job, Truth<uint8_t, op>{});
    if (truth_width == 2) return run<uint16_t>(job, Truth<uint16_t, op>{});
    if (truth_width == 4) return run<uint32_t>(job, Truth<uint32_t, op>{});
    run<uint64_t>(job, Truth<uint64_t, op>{});
}

}  // namespace

bool is_plain(Dtype dtype, ReduceOp op) {
    return dtype == Dtype::boolean || (op >= ReduceOp::band && op <= ReduceOp::maxloc);
}

void reduce_plain(const Job& job, Dtype dtype, ReduceOp op) {
    if (op == ReduceOp::minloc || op == ReduceOp::maxloc) return reduce_pairs(job, dtype, op);
    const size_t truth_width = is_logical(dtype, op) ? size_of(dtype) : 0;
    if (of_bits(op) == ReduceOp::band) return reduce_bits<ReduceOp::band>(job, truth_width);
    if (of_bits(op) == ReduceOp::bor) return reduce_bits<ReduceOp::bor>(job, truth_width);
    if (of_bits(op) == ReduceOp::bxor) return reduce_bits<ReduceOp::bxor>(job, truth_width);
}

}  // namespace nexar::reduce
