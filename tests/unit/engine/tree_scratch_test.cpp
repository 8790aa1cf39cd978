// The scratch memory of deterministic reductions: bounded, however unevenly the results are owned
// (docs/protocol/partials.md [Z6]).
#include <catch2/catch_test_macros.hpp>

#include "collectives/rank_tree.hpp"
#include "engine/two_level.hpp"
#include "run_fixture.hpp"

namespace nexar::engine {
namespace {

constexpr uint64_t most = 3 * collectives::tree_step_bytes_max;  // made, arriving, and a share of the results

std::vector<uint32_t> blockwise(uint32_t nodes, uint32_t ranks_of_each) {
    std::vector<uint32_t> out;
    for (uint32_t rank = 0; rank < nodes * ranks_of_each; ++rank) out.push_back(rank / ranks_of_each);
    return out;
}
std::vector<uint32_t> cyclic(uint32_t nodes, uint32_t ranks_of_each) {
    std::vector<uint32_t> out;
    for (uint32_t rank = 0; rank < nodes * ranks_of_each; ++rank) out.push_back(rank % nodes);
    return out;
}
// Half of all ranks are on one node.
std::vector<uint32_t> lopsided(uint32_t nodes) {
    std::vector<uint32_t> out;
    for (uint32_t node = 1; node < nodes; ++node) out.push_back(node);
    for (uint32_t rank = 1; rank < nodes; ++rank) out.push_back(0);
    return out;
}

// The most that a segment takes on any node, and the phases that it uses.
void expect_bounded(const std::vector<uint32_t>& placement, OpKind kind,
                    const std::vector<uint64_t>& counts) {
    const auto size = static_cast<uint32_t>(placement.size());
    TwoLevelOp op;
    const GroupFacts facts = facts_of(placement);
    op.facts = &facts;
    op.layout = &facts.layout;
    op.descriptor = {kind, Dtype::f32, ReduceOp::sum, 0, 0};
    op.descriptor.partials = Partials::tree;
    op.counts = counts.empty() ? nullptr : std::make_shared<const Counts>(*Counts::of(counts));
    op.descriptor.count = op.counts ? op.counts->sum() : uint64_t{64} * 1024 * 1024 / size;
    collectives::Shape shape{kind, op.descriptor.count, 4, 0};
    shape.partials = Partials::tree;
    op.plan = collectives::plan(shape, facts.layout, {});
    for (uint32_t node = 0; node < facts.layout.nodes(); ++node) {
        op.self = collectives::NodeIndex(node);
        op.locals.clear();
        for (const uint32_t rank : facts.layout.ranks_on(op.self)) op.locals.emplace_back().rank = rank;
        for (const uint32_t segment : {0u, op.plan.segments / 2, op.plan.segments - 1}) {
            CAPTURE(node, segment);
            CHECK(scratch_of(op, segment) <= most);
        }
    }
}

}  // namespace

TEST_CASE("a deterministic reduction's scratch memory is bounded, whichever node owns the results", "[Z6]") {
    for (const auto& placement : {blockwise(64, 1), blockwise(64, 4), cyclic(16, 4), lopsided(64)}) {
        const auto size = static_cast<uint32_t>(placement.size());
        CAPTURE(size, placement);
        std::vector<uint64_t> one(size), few(size), rising(size);
        constexpr uint64_t elements = uint64_t{16} * 1024 * 1024;
        for (const uint32_t owner : {0u, size / 3, size - 1}) {
            std::ranges::fill(one, 0);
            one[owner] = elements;
            expect_bounded(placement, OpKind::reduce_scatterv, one);
        }
        few[1] = elements, few[2] = 1, few[size - 1] = elements / 3;
        expect_bounded(placement, OpKind::reduce_scatterv, few);
        for (uint32_t rank = 0; rank < size; ++rank) rising[rank] = rank * 40'000;
        expect_bounded(placement, OpKind::reduce_scatterv, rising);
        for (const OpKind kind : {OpKind::reduce_scatter, OpKind::all_reduce, OpKind::reduce})
            expect_bounded(placement, kind, {});
    }
}

TEST_CASE("the phases that a plan allots suffice for the steps that lists of counts make necessary", "[Z6]") {
    const collectives::Layout layout(blockwise(16, 2));
    constexpr uint64_t elements = 1 << 20;
    std::vector<uint64_t> one(32);
    one[5] = elements;
    const Counts counts = *Counts::of(one);
    collectives::Shape shape{OpKind::reduce_scatterv, elements, 4, 0};
    shape.partials = Partials::tree;
    const collectives::Plan plan = collectives::plan(shape, layout, {});
    std::vector<uint64_t> owned(16);
    owned[2] = elements / plan.segments;
    const collectives::TreeCut cut(layout, elements / plan.segments, 4, plan.chunk_bytes, 0, owned);
    CHECK(cut.steps() > 1);
    CHECK(cut.phases() <= plan.phases);
    const collectives::TreeCut even(layout, elements / plan.segments, 4, plan.chunk_bytes, 0);
    CHECK(even.steps() == 1);
}

}  // namespace nexar::engine
