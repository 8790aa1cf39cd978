// Pipelined chain reduce, for large data: the chain broadcast in reverse; each node adds its share to every
// chunk on the way to the root.
//
// Steps: n-1 for the first chunk, one per chunk after it. Bytes: the data once over each of the n-1 hops.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> chain_reduce(Lane& lane, Extents data, NodeIndex root, Arithmetic arithmetic) {
    const Ring ring(lane);
    const uint32_t position = ring.behind(root.value);
    if (ring.nodes == 1) co_return ok();

    if (position == 0)
        co_await done(lane.recv_reduce(ring.right, 0, data, arithmetic));
    else if (position == ring.nodes - 1)
        co_await done(lane.send(ring.left, 0, data));
    else
        co_await done(lane.recv_reduce_send(ring.right, ring.left, 0, 0, data, arithmetic));
    co_return ok();
}

const Cost chain_reduce_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_chain(ledger, s, false); },
};

}  // namespace nexar::collectives
