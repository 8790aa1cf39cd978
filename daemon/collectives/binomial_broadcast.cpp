// Binomial broadcast: a node that has the data sends it to the roots of its subtrees, the largest first.
//
// Steps: ceil(log2 n). Bytes: the data once over each of the tree's n-1 edges.
#include <ranges>

#include "collectives/algorithms.hpp"
#include "collectives/tree.hpp"

namespace nexar::collectives {

Task<> binomial_broadcast(Lane& lane, Extents data, NodeIndex root) {
    const BinomialTree tree(lane, root);
    if (!tree.is_root()) co_await done(lane.recv_copy(tree.parent(), 0, data));

    Vector<Op*> ops;
    for (NodeIndex child : std::views::reverse(tree.children())) ops.push_back(&lane.send(child, 0, data));
    co_await all(ops);
    co_return ok();
}

const Cost binomial_broadcast_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_binomial(ledger, s, true); },
};

}  // namespace nexar::collectives
