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

struct Bits {
    ReduceOp op;
    uint8_t begin(uint8_t value) const { return value; }
    uint8_t fold(uint8_t a, uint8_t b) const {
        if (op == ReduceOp::band) return a & b;
        return op == ReduceOp::bor ? a | b : a ^ b;
    }
};

// Anything but 0 is true; the results are 0 and 1.
template <class T>
struct Truth {
    ReduceOp op;
    T begin(T value) const { return value != 0; }
    T fold(T a, T b) const {
        if (op == ReduceOp::land) return a & b;
        return op == ReduceOp::lor ? a | b : a ^ b;
    }
};

// Of truth values the least is "and", the greatest "or", and the operators on bits are the logical ones.
ReduceOp logical(ReduceOp op) {
    if (op == ReduceOp::min || op == ReduceOp::band) return ReduceOp::land;
    if (op == ReduceOp::max || op == ReduceOp::bor) return ReduceOp::lor;
    return op == ReduceOp::bxor ? ReduceOp::lxor : op;
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

void reduce_truth(const Job& job, size_t width, ReduceOp op) {
    if (width == 1) run<uint8_t>(job, Truth<uint8_t>{op});
    if (width == 2) run<uint16_t>(job, Truth<uint16_t>{op});
    if (width == 4) run<uint32_t>(job, Truth<uint32_t>{op});
    if (width == 8) run<uint64_t>(job, Truth<uint64_t>{op});
}

}  // namespace

bool is_plain(Dtype dtype, ReduceOp op) {
    return dtype == Dtype::boolean || (op >= ReduceOp::band && op <= ReduceOp::maxloc);
}

void reduce_plain(const Job& job, Dtype dtype, ReduceOp op) {
    if (op == ReduceOp::minloc || op == ReduceOp::maxloc) return reduce_pairs(job, dtype, op);
    if (dtype == Dtype::boolean) return reduce_truth(job, 1, logical(op));
    if (op == ReduceOp::land || op == ReduceOp::lor || op == ReduceOp::lxor)
        return reduce_truth(job, size_of(dtype), op);
    run<uint8_t>(job, Bits{op});
}

}  // namespace nexar::reduce
