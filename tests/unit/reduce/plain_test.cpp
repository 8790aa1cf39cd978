// Bits, truth values and value-index pairs, against loops that are written another way: bit by bit, as counts
// of truths, and by sorting.
#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

constexpr ReduceOp bit_ops[] = {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor};
constexpr ReduceOp logical_ops[] = {ReduceOp::land, ReduceOp::lor, ReduceOp::lxor};
constexpr size_t count = 4099;  // blocks, and an odd rest

// Whether the result is true, of so many sources of which so many are true.
bool truth(ReduceOp op, size_t sources, size_t trues) {
    switch (op) {
        case ReduceOp::min:
        case ReduceOp::band:
        case ReduceOp::land:
            return trues == sources;
        case ReduceOp::bxor:
        case ReduceOp::lxor:
            return trues % 2 == 1;
        default:
            return trues > 0;
    }
}

Bits bit_by_bit(ReduceOp op, const Elements& column) {
    Bits out = 0;
    for (int bit = 0; bit < 64; ++bit) {
        const auto ones = static_cast<size_t>(
            std::ranges::count_if(column, [bit](Bits value) { return (value >> bit & 1) != 0; }));
        out |= Bits{truth(op, column.size(), ones)} << bit;
    }
    return out;
}

Bits logical(ReduceOp op, const Elements& column) {
    const auto trues = column.size() - static_cast<size_t>(std::ranges::count(column, Bits{0}));
    return truth(op, column.size(), trues);
}

// Zeros often, so that truth values differ.
Elements sparse(Dtype dtype, uint64_t seed) {
    Elements out = make_elements(dtype, count, seed);
    for (Bits& value : out)
        if (splitmix(seed) % 2 == 0) value = 0;
    return out;
}

template <class Expected>
void expect(Dtype dtype, ReduceOp op, size_t sources, Expected expected) {
    std::vector<Elements> elements;
    std::vector<Buffer> buffers;
    std::vector<const void*> srcs;
    for (size_t s = 0; s < sources; ++s) {
        elements.push_back(sparse(dtype, 40 + s));
        buffers.push_back(lay_out(dtype, elements.back(), s));
    }
    for (size_t s = 0; s < sources; ++s) srcs.push_back(&buffers[s][s]);
    Elements want(count);
    for (size_t i = 0; i < count; ++i) {
        Elements column;
        for (const Elements& source : elements) column.push_back(source[i]);
        want[i] = expected(op, column);
    }
    Buffer apart = lay_out(dtype, Elements(count), 3);
    const size_t last = sources - 1;
    const std::vector<void*> dsts{&apart[3], &buffers[last][last]};

    reduce_many_to(dsts, srcs, count, dtype, op);

    INFO(name_of(dtype) << " " << name_of(op) << " of " << sources);
    CHECK((apart == lay_out(dtype, want, 3)));
    CHECK((buffers[last] == lay_out(dtype, want, last)));  // in place
}

}  // namespace

TEST_CASE("bits are combined bit by bit, in every integer type") {
    for (const Dtype dtype : integer_dtypes)
        for (const ReduceOp op : bit_ops)
            for (const size_t sources : {1u, 2u, 5u}) expect(dtype, op, sources, bit_by_bit);
}

TEST_CASE("logical operators take anything but zero for true, and give 0 and 1") {
    for (const Dtype dtype : integer_dtypes)
        for (const ReduceOp op : logical_ops)
            for (const size_t sources : {1u, 2u, 5u}) expect(dtype, op, sources, logical);
}

TEST_CASE("every operator of bool is a logical one") {
    for (int code = 0; code < reduce_op_count; ++code) {
        const auto op = static_cast<ReduceOp>(code);
        if (!may_reduce(Dtype::boolean, op)) continue;
        for (const size_t sources : {1u, 2u, 5u}) expect(Dtype::boolean, op, sources, logical);
    }
}

namespace {

template <class V, class I>
struct Pair {
    V value;
    I index;
};
template <class V, class I>
struct PairCase;
template <>
struct PairCase<float, int32_t> {
    static constexpr Dtype dtype = Dtype::f32_i32;
};
template <>
struct PairCase<double, int64_t> {
    static constexpr Dtype dtype = Dtype::f64_i64;
};
template <>
struct PairCase<int32_t, int32_t> {
    static constexpr Dtype dtype = Dtype::i32_i32;
};
template <>
struct PairCase<int64_t, int64_t> {
    static constexpr Dtype dtype = Dtype::i64_i64;
};

template <class P>
bool same_bits(const P& a, const P& b) {
    return std::memcmp(&a, &b, sizeof(P)) == 0;
}

template <class V>
V special(uint64_t which) {
    if constexpr (std::is_floating_point_v<V>) {
        using L = std::numeric_limits<V>;
        const V values[] = {0,
                            V(-0.0),
                            1,
                            -1,
                            L::infinity(),
                            -L::infinity(),
                            L::quiet_NaN(),
                            -L::quiet_NaN(),
                            L::denorm_min(),
                            -L::denorm_min()};
        return values[which % std::size(values)];
    } else {
        using L = std::numeric_limits<V>;
        const V values[] = {0, 1, -1, L::min(), L::max()};
        return values[which % std::size(values)];
    }
}

// The first of the pairs in the order that reduce.hpp states.
template <class V, class I>
Pair<V, I> first_of(std::vector<Pair<V, I>> pairs, bool greatest) {
    const auto key = [greatest](const Pair<V, I>& p) {
        const auto wide = static_cast<long double>(p.value);
        const bool nan = wide != wide;
        const long double number = nan ? 0 : greatest ? -wide : wide;
        return std::tuple(!nan, number, p.index, !nan && std::signbit(number) == 0);
    };
    std::ranges::sort(pairs, [&](const auto& a, const auto& b) { return key(a) < key(b); });
    if (pairs[0].value != pairs[0].value) pairs[0].value = std::numeric_limits<V>::quiet_NaN();
    return pairs[0];
}

template <class V, class I>
void expect_pairs() {
    using P = Pair<V, I>;
    constexpr size_t sources = 5, elements = 1027;
    constexpr Dtype dtype = PairCase<V, I>::dtype;
    REQUIRE(size_of(dtype) == sizeof(P));
    for (const ReduceOp op : {ReduceOp::minloc, ReduceOp::maxloc}) {
        uint64_t seed = 5;
        std::vector<std::vector<P>> values(sources, std::vector<P>(elements));
        for (auto& source : values)
            for (P& pair : source)
                pair = {special<V>(splitmix(seed)), static_cast<I>(splitmix(seed) % 4) - 1};
        std::vector<P> want(elements);
        for (size_t i = 0; i < elements; ++i) {
            std::vector<P> column;
            for (const auto& source : values) column.push_back(source[i]);
            want[i] = first_of<V, I>(column, op == ReduceOp::maxloc);
        }
        // At odd addresses; the order of the sources and their grouping do not matter.
        for (const bool reversed : {false, true}) {
            std::vector<Buffer> buffers;
            for (size_t s = 0; s < sources; ++s) {
                buffers.emplace_back(elements * sizeof(P) + s);
                std::memcpy(&buffers[s][s], values[s].data(), elements * sizeof(P));
            }
            std::vector<const void*> srcs;
            for (size_t s = 0; s < sources; ++s) srcs.push_back(&buffers[s][s]);
            if (reversed) std::ranges::reverse(srcs);
            unsigned char* const into = &buffers[1][1];
            reduce_many(into, std::span(srcs).first(4), elements, dtype, op);
            reduce_into(into, srcs[4], elements, dtype, op);

            std::vector<P> got(elements);
            std::memcpy(got.data(), into, elements * sizeof(P));
            size_t wrong = 0;
            for (size_t i = 0; i < elements; ++i) wrong += !same_bits(got[i], want[i]);
            INFO(name_of(dtype) << " " << name_of(op));
            CHECK(wrong == 0);
        }
    }
}

}  // namespace

TEST_CASE("minloc and maxloc give the first pair of a total order, whatever is combined first") {
    expect_pairs<float, int32_t>();
    expect_pairs<double, int64_t>();
    expect_pairs<int32_t, int32_t>();
    expect_pairs<int64_t, int64_t>();
}

TEST_CASE("the lowest index wins at equal values, and a NaN wins over numbers") {
    using P = Pair<float, int32_t>;
    const auto combined = [](ReduceOp op, P a, P b) {
        reduce_into(&a, &b, 1, Dtype::f32_i32, op);
        return a;
    };
    CHECK(same_bits(combined(ReduceOp::minloc, {2, 7}, {2, 3}), P{2, 3}));
    CHECK(same_bits(combined(ReduceOp::maxloc, {2, 3}, {2, 7}), P{2, 3}));
    CHECK(same_bits(combined(ReduceOp::minloc, {-0.0f, 7}, {0.0f, 3}), P{0.0f, 3}));
    CHECK(same_bits(combined(ReduceOp::minloc, {0.0f, 3}, {-0.0f, 3}), P{-0.0f, 3}));
    CHECK(same_bits(combined(ReduceOp::maxloc, {-0.0f, 3}, {0.0f, 3}), P{0.0f, 3}));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(same_bits(combined(ReduceOp::minloc, {1, 0}, {-nan, 9}), P{nan, 9}));
    CHECK(same_bits(combined(ReduceOp::maxloc, {nan, 9}, {nan, 4}), P{nan, 4}));
}

#if defined(__x86_64__)
TEST_CASE("a caller that takes subnormals for zero gets the same pairs") {
    using P = Pair<float, int32_t>;
    const float tiny = std::bit_cast<float>(1u);
    P a{tiny, 1};
    const P b{0.0f, 2};
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(0x1f80 | 0x8000 | 0x0040);
    reduce_into(&a, &b, 1, Dtype::f32_i32, ReduceOp::minloc);
    _mm_setcsr(saved);
    CHECK(same_bits(a, P{0.0f, 2}));
}
#endif

TEST_CASE("a type that lacks the operator is left alone") {
    for (int type = 0; type < dtype_count; ++type) {
        for (int op = 0; op < reduce_op_count; ++op) {
            const auto dtype = static_cast<Dtype>(type);
            const auto by = static_cast<ReduceOp>(op);
            if (may_reduce(dtype, by)) continue;
            Buffer dst(64, 0x11);
            const Buffer src(64, 0x22);
            reduce_into(dst.data(), src.data(), 64 / size_of(dtype), dtype, by);
            CHECK((dst == Buffer(64, 0x11)));
        }
    }
}
