// Binomial reduce: the broadcast's tree in reverse. The children's shares are received at the same time and
// combined in a fixed order, so the order of arrival does not change the result.
//
// Steps: ceil(log2 n). Bytes: the data once over each of the tree's n-1 edges. Scratch: the data per child.
#include "collectives/algorithms.hpp"
#include "collectives/tree.hpp"

namespace nexar::collectives {

Task<> binomial_reduce(Lane& lane, Extents data, NodeIndex root, Arithmetic arithmetic) {
    const BinomialTree tree(lane, root);
    const Vector<NodeIndex> children = tree.children();
    Vector<Extents> shares;
    Vector<Op*> arrivals;
    for (NodeIndex child : children) {
        const link::Extent memory = lane.scratch(link::bytes_of(data));
        shares.push_back(Extents{memory});
        arrivals.push_back(&lane.recv_copy(child, 0, shares.back()));
    }
    for (size_t i = 0; i < children.size(); ++i) {
        co_await done(*arrivals[i]);
        co_await done(lane.reduce(data, shares[i], arithmetic));
    }
    if (!tree.is_root()) co_await done(lane.send(tree.parent(), 0, data));
    co_return ok();
}

const Cost binomial_reduce_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_binomial(ledger, s, false); },
};

}  // namespace nexar::collectives
