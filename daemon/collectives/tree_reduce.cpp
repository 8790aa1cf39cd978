// Deterministic reduce: a deterministic reduce-scatter of even shares, which their owners then send to the
// root.
//
// Steps: 2. Bytes: those of the reduce-scatter, and each share once, in the operation's own type.
#include "collectives/algorithms.hpp"
#include "collectives/rank_tree.hpp"

namespace nexar::collectives {
namespace {

TreeCut reduce_cut(const SegmentShape& s) {
    return TreeCut(s.layout, s.elements, s.partial_bytes, s.chunk_bytes, 1);
}

}  // namespace

Task<> tree_reduce(Lane& lane, TreeStep step, Vector<Extents> shares, NodeIndex root) {
    const uint32_t gather_phase = step.gather_phase;
    co_await tree_reduce_scatter(lane, std::move(step));
    co_await direct_gather(lane, std::move(shares), root, gather_phase);
    co_return ok();
}

const Cost tree_reduce_cost{
    .phases = [](const SegmentShape& s) { return reduce_cut(s).phases(); },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            const std::vector<uint64_t> shares = even_shares(s, reduce_cut(s));
            add_tree_exchange(ledger, s, [&](uint32_t node) { return shares[node]; });
            for (uint32_t node = 0; node < s.nodes(); ++node)
                if (node != s.root.value) ledger.add(node, s.root.value, shares[node] * s.element_bytes);
        },
};

}  // namespace nexar::collectives
