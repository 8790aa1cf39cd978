// Binomial scatter: the binomial gather in reverse. A node receives the blocks of its subtree as one transfer
// and sends those of its children's subtrees on, the largest first.
//
// Steps: ceil(log2 n). Bytes: each block once over each edge between the root and its node.
#include <ranges>

#include "collectives/algorithms.hpp"
#include "collectives/tree.hpp"

namespace nexar::collectives {

Task<> binomial_scatter(Lane& lane, Vector<Extents> blocks, NodeIndex root) {
    const BinomialTree tree(lane, root);
    if (!tree.is_root())
        co_await done(lane.recv_copy(tree.parent(), 0, tree.subtree_blocks(lane.self(), blocks)));

    Vector<Op*> ops;
    for (NodeIndex child : std::views::reverse(tree.children()))
        ops.push_back(&lane.send(child, 0, tree.subtree_blocks(child, blocks)));
    co_await all(ops);
    co_return ok();
}

const Cost binomial_scatter_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_binomial_blocks(ledger, s, true); },
};

}  // namespace nexar::collectives
