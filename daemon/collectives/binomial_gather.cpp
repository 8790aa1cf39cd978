// Binomial gather: a node receives the blocks of its children's subtrees and sends them with its own, as one
// transfer, to its parent.
//
// Steps: ceil(log2 n). Bytes: each block once over each edge between its node and the root.
#include "collectives/algorithms.hpp"
#include "collectives/tree.hpp"

namespace nexar::collectives {

Task<> binomial_gather(Lane& lane, Vector<Extents> blocks, NodeIndex root) {
    const BinomialTree tree(lane, root);
    Vector<Op*> arrivals;
    for (NodeIndex child : tree.children())
        arrivals.push_back(&lane.recv_copy(child, 0, tree.subtree_blocks(child, blocks)));
    co_await all(arrivals);
    if (!tree.is_root()) co_await done(lane.send(tree.parent(), 0, tree.subtree_blocks(lane.self(), blocks)));
    co_return ok();
}

const Cost binomial_gather_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_binomial_blocks(ledger, s, false); },
};

}  // namespace nexar::collectives
