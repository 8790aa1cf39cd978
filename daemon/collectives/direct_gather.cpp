// Direct gather, for large data: every node sends its block to the root, all at the same time.
//
// Steps: 1. Bytes: each block once, from its node to the root.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> direct_gather(Lane& lane, Vector<Extents> blocks, NodeIndex root, uint32_t first_phase) {
    if (lane.self() != root) {
        co_await done(lane.send(root, first_phase, blocks[lane.self().value]));
        co_return ok();
    }
    const Ring ring(lane);
    Vector<Op*> arrivals;
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        const NodeIndex from(ring.behind(distance));
        arrivals.push_back(&lane.recv_copy(from, first_phase, blocks[from.value]));
    }
    co_await all(arrivals);
    co_return ok();
}

const Cost direct_gather_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_direct_blocks(ledger, s, false); },
};

}  // namespace nexar::collectives
