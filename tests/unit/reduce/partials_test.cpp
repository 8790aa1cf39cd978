// Partials: the tree over the ranks, the part of it that each node combines, and the rounding at the end.
#include "reduce/partials.hpp"

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "oracle.hpp"
#include "reduce/reduce.hpp"

using namespace nexar::reduce;
using namespace nexar::reduce::test;

namespace {

constexpr size_t count = 1100;  // more than a block of partials

Bits widened(Dtype dtype, Bits value) {
    const Dtype to = partial_type(dtype);
    return to == dtype ? value : encode(format_of(to), decode(format_of(dtype), value));
}
Bits narrowed(Dtype dtype, Bits partial) {
    const Dtype from = partial_type(dtype);
    return from == dtype ? partial : encode(format_of(dtype), decode(format_of(from), partial));
}

// The tree as its definition has it.
Bits tree(Dtype dtype, ReduceOp op, std::span<const Bits> values) {
    if (values.size() == 1) return widened(dtype, values[0]);
    const size_t half = std::bit_floor(values.size() - 1);
    const std::array<Bits, 2> halves{tree(dtype, op, values.first(half)),
                                     tree(dtype, op, values.subspan(half))};
    return fold(partial_type(dtype), op, halves);
}
Bits in_turn(Dtype dtype, ReduceOp op, std::span<const Bits> values) {
    std::vector<Bits> partials;
    for (const Bits value : values) partials.push_back(widened(dtype, value));
    return fold(partial_type(dtype), op, partials);
}

struct Ranks {
    Dtype dtype;
    std::vector<Elements> elements;
    std::vector<Buffer> buffers;

    Ranks(Dtype type, uint32_t n, uint64_t seed) : dtype(type) {
        for (uint32_t r = 0; r < n; ++r) {
            elements.push_back(make_elements(type, count, seed + r));
            buffers.push_back(lay_out(type, elements.back(), r % 5));
        }
    }
    uint32_t size() const { return static_cast<uint32_t>(elements.size()); }
    PartialSource source(uint32_t r) const { return {&buffers[r][r % 5], {r, r + 1}, false}; }
    Elements column(size_t i) const {
        Elements out;
        for (const Elements& each : elements) out.push_back(each[i]);
        return out;
    }
};

void combine(const Ranks& ranks, std::span<const PartialSource> srcs, void* dst, ReduceOp op,
             uint32_t tree_ranks, bool to_partial, uint64_t divisor) {
    combine_partials({{&dst, 1}, srcs, {}, count, ranks.dtype, op, tree_ranks, to_partial, divisor});
}

// The result when the ranks are on these nodes, of which the last one has the element.
Buffer by_nodes(const Ranks& ranks, std::span<const uint32_t> node_of, ReduceOp op, uint64_t divisor) {
    std::vector<Buffer> memory;
    std::vector<PartialSource> roots;
    for (uint32_t node = 0; node <= *std::ranges::max_element(node_of); ++node) {
        std::vector<uint32_t> members;
        for (uint32_t r = 0; r < ranks.size(); ++r)
            if (node_of[r] == node) members.push_back(r);
        for (const RankRange range : subtrees_of(members, ranks.size())) {
            std::vector<PartialSource> srcs;
            for (uint32_t r = range.begin; r < range.end; ++r) srcs.push_back(ranks.source(r));
            memory.push_back(Buffer(count * size_of(partial_type(ranks.dtype))));
            combine(ranks, srcs, memory.back().data(), op, ranks.size(), true, 0);
            roots.push_back({memory.back().data(), range, true});
        }
    }
    std::ranges::sort(roots, {}, [](const PartialSource& root) { return root.ranks.begin; });
    Buffer out(count * size_of(ranks.dtype));
    combine(ranks, roots, out.data(), op, ranks.size(), false, divisor);
    return out;
}

}  // namespace

TEST_CASE("a tree's ranges are halves at the largest power of two below their length") {
    CHECK(are_halves({0, 4}, {4, 7}, 7));
    CHECK(are_halves({4, 6}, {6, 7}, 7));
    CHECK_FALSE(are_halves({4, 5}, {5, 7}, 7));
    CHECK_FALSE(are_halves({2, 4}, {4, 6}, 8));
    CHECK_FALSE(are_halves({0, 4}, {4, 6}, 7));
    const std::vector<uint32_t> some{0, 1, 2, 3, 5, 6, 7};
    CHECK(subtrees_of(some, 9) == std::vector<RankRange>{{0, 4}, {5, 6}, {6, 8}});
    const std::vector<uint32_t> all{0, 1, 2, 3, 4};
    CHECK(subtrees_of(all, 5) == std::vector<RankRange>{{0, 5}});
}

TEST_CASE(
    "a tree has the same bits whichever node combines a part of it, with every set of instructions [Z1]") {
    uint64_t random = 7;
    for (const Dtype dtype : float_dtypes)
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::prod})
            for (const uint32_t n : {2u, 3u, 5u, 8u, 13u}) {
                const Ranks ranks(dtype, n, 10 * n);
                const uint64_t divisor = op == ReduceOp::sum ? n : 0;
                Elements expected;
                for (size_t i = 0; i < count; ++i) {
                    Bits partial = tree(dtype, op, ranks.column(i));
                    if (divisor != 0) partial = divide(partial_type(dtype), partial, divisor);
                    expected.push_back(narrowed(dtype, partial));
                }
                const Buffer want = lay_out(dtype, expected, 0);
                on_every_target([&](const Kernels& kernels) {
                    for (uint32_t nodes = 1; nodes <= n; nodes += 2) {
                        std::vector<uint32_t> node_of;
                        for (uint32_t r = 0; r < n; ++r)
                            node_of.push_back(static_cast<uint32_t>(splitmix(random) % nodes));
                        CAPTURE(kernels.target, int(dtype), int(op), n, nodes);
                        const Buffer got = by_nodes(ranks, node_of, op, divisor);
                        REQUIRE((got == Buffer(want.begin(), want.begin() + ptrdiff_t(got.size()))));
                    }
                });
            }
}

TEST_CASE("partials in turn are rounded to the type once, at the end") {
    for (const Dtype dtype : float_dtypes) {
        const Ranks ranks(dtype, 6, 99);
        std::vector<PartialSource> srcs;
        for (uint32_t r = 0; r < ranks.size(); ++r) srcs.push_back(ranks.source(r));
        Elements expected;
        for (size_t i = 0; i < count; ++i)
            expected.push_back(narrowed(dtype, in_turn(dtype, ReduceOp::sum, ranks.column(i))));
        const Buffer want = lay_out(dtype, expected, 0);
        on_every_target([&](const Kernels& kernels) {
            CAPTURE(kernels.target, int(dtype));
            Buffer got(count * size_of(dtype));
            combine(ranks, srcs, got.data(), ReduceOp::sum, 0, false, 0);
            REQUIRE((got == Buffer(want.begin(), want.begin() + ptrdiff_t(got.size()))));
        });
    }
}

TEST_CASE("a premultiplied sum's products are rounded to the type, then they are partials") {
    const Ranks ranks(Dtype::bf16, 5, 3);
    const std::vector<uint64_t> scalars{0x3f80, 0x4040, 0xbf00, 0x3eaa, 0x4228};
    Ranks products = ranks;
    std::vector<PartialSource> srcs, multiplied;
    for (uint32_t r = 0; r < ranks.size(); ++r) {
        void* const to = &products.buffers[r][r % 5];
        const void* const from = &ranks.buffers[r][r % 5];
        premul_sum({&to, 1}, {&from, 1}, {&scalars[r], 1}, count, Dtype::bf16);
        srcs.push_back(ranks.source(r));
        multiplied.push_back(products.source(r));
    }
    Buffer want(2 * count), got(2 * count);
    combine(products, multiplied, want.data(), ReduceOp::sum, 5, false, 0);

    void* const dst = got.data();
    combine_partials({{&dst, 1}, srcs, scalars, count, Dtype::bf16, ReduceOp::sum, 5, false, 0});

    CHECK((got == want));
}

TEST_CASE("8-bit floats are widened and narrowed as the other conversions have it") {
    for (const Dtype dtype : {Dtype::f8e4m3fn, Dtype::f8e5m2})
        on_every_target([&](const Kernels& kernels) {
            CAPTURE(kernels.target, int(dtype));
            for (Bits value = 0; value < 256; ++value) {
                const auto byte = static_cast<uint8_t>(value);
                uint32_t wide = 0;
                widen(&wide, &byte, 1, dtype);
                REQUIRE(wide == widened(dtype, value));
                for (const uint32_t near : {wide, wide + 1, wide - 1, wide + 0x80000, wide + 0xfffff}) {
                    uint8_t back = 0;
                    narrow(&back, &near, 1, dtype);
                    REQUIRE(back == narrowed(dtype, near));
                }
            }
        });
}
