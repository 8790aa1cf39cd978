// Deterministic all-reduce: a deterministic reduce-scatter of even shares, then a ring all-gather of the
// results.
//
// Steps: n. Bytes: those of the two, the results in the operation's own type.
#include "collectives/algorithms.hpp"
#include "collectives/rank_tree.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {
namespace {

TreeCut all_reduce_cut(const SegmentShape& s) {
    return TreeCut(s.layout, s.elements, s.partial_bytes, s.chunk_bytes, s.nodes() - 1);
}

}  // namespace

Task<> tree_all_reduce(Lane& lane, TreeStep step, Vector<Extents> shares) {
    const uint32_t gather_phase = step.gather_phase;
    co_await tree_reduce_scatter(lane, std::move(step));
    co_await ring_all_gather(lane, std::move(shares), gather_phase);
    co_return ok();
}

const Cost tree_all_reduce_cost{
    .phases = [](const SegmentShape& s) { return all_reduce_cut(s).phases(); },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            std::vector<uint64_t> shares = even_shares(s, all_reduce_cut(s));
            add_tree_exchange(ledger, s, [&](uint32_t node) { return shares[node]; });
            for (uint64_t& share : shares) share *= s.element_bytes;
            add_ring(ledger, shares, 1);
        },
};

}  // namespace nexar::collectives
