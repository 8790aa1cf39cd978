// Direct scatter, for large data: the root sends every node its block, all at the same time.
//
// Steps: 1. Bytes: each block once, from the root to its node.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> direct_scatter(Lane& lane, Vector<Extents> blocks, NodeIndex root) {
    if (lane.self() != root) {
        co_await done(lane.recv_copy(root, 0, blocks[lane.self().value]));
        co_return ok();
    }
    const Ring ring(lane);
    Vector<Op*> ops;
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        const NodeIndex to((ring.self + distance) % ring.nodes);
        ops.push_back(&lane.send(to, 0, blocks[to.value]));
    }
    co_await all(ops);
    co_return ok();
}

const Cost direct_scatter_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_direct_blocks(ledger, s, true); },
};

}  // namespace nexar::collectives
