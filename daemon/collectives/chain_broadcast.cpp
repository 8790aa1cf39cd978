// Pipelined chain broadcast, for large data: every node forwards each chunk as soon as it has arrived.
//
// Steps: n-1 for the first chunk, one per chunk after it. Bytes: the data once over each of the n-1 hops; no
// node sends it twice, as the binomial tree's root does.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> chain_broadcast(Lane& lane, Extents data, NodeIndex root) {
    const Ring ring(lane);
    const uint32_t position = ring.behind(root.value);
    if (ring.nodes == 1) co_return ok();

    if (position == 0)
        co_await done(lane.send(ring.right, 0, data));
    else if (position == ring.nodes - 1)
        co_await done(lane.recv_copy(ring.left, 0, data));
    else
        co_await done(lane.recv_copy_send(ring.left, ring.right, 0, 0, data));
    co_return ok();
}

const Cost chain_broadcast_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_chain(ledger, s, true); },
};

}  // namespace nexar::collectives
