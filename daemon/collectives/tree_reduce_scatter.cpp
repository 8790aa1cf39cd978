// Deterministic reduce-scatter: each node sends the partials of the roots of its subtrees (ranges of the tree
// over the ranks whose ranks are all its own) to the elements' owners, which combine them along the tree.
//
// Steps: 1. Bytes from node i to node j: for each subtree of i a partial of each element of j. A node whose
// ranks are 2^k successive ones at a multiple of 2^k has one subtree; of cyclic ranks each is one.
#include "collectives/algorithms.hpp"
#include "collectives/rank_tree.hpp"

namespace nexar::collectives {
namespace {

// Lists of counts are not known when an operation is planned: then any node may own everything.
TreeCut scatter_cut(const SegmentShape& s) {
    const uint64_t elements = s.has_counts ? s.elements : s.elements * s.layout.size();
    std::vector<uint64_t> owned(s.nodes(), s.elements);
    for (uint32_t node = 0; node < s.nodes(); ++node)
        if (!s.has_counts || s.counts != nullptr) owned[node] = s.block_bytes_on(node) / s.element_bytes;
    return TreeCut(s.layout, elements, s.partial_bytes, s.chunk_bytes, 0, owned);
}

}  // namespace

Task<> tree_reduce_scatter(Lane& lane, TreeStep step) {
    co_await pairwise_all_to_all(lane, std::move(step.outgoing), std::move(step.incoming),
                                 step.transfer_bytes_max, step.exchange_phase);
    co_await done(step.combine());
    co_return ok();
}

const Cost tree_reduce_scatter_cost{
    .phases = [](const SegmentShape& s) { return scatter_cut(s).phases(); },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            add_tree_exchange(ledger, s,
                              [&](uint32_t node) { return s.block_bytes_on(node) / s.element_bytes; });
        },
};

}  // namespace nexar::collectives
