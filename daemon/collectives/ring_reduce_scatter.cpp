// Ring reduce-scatter: block b starts at node b+1, adds each node's share on its way and ends at node b.
//
// Steps: n-1. Bytes from node i to i+1: all blocks but block i.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> ring_reduce_scatter(Lane& lane, Vector<Extents> blocks, Arithmetic arithmetic) {
    const Ring ring(lane);
    const uint32_t last = ring.nodes - 1;
    if (last == 0) co_return ok();
    Vector<Op*> ops;

    ops.push_back(&lane.send(ring.right, 0, blocks[ring.behind(1)]));
    for (uint32_t step = 0; step + 1 < last; ++step)
        ops.push_back(&lane.recv_reduce_send(ring.left, ring.right, step, step + 1,
                                             blocks[ring.behind(step + 2)], arithmetic));
    ops.push_back(&lane.recv_reduce(ring.left, last - 1, blocks[ring.self], arithmetic));

    lane.await_together();
    co_await all(ops);
    co_return ok();
}

const Cost ring_reduce_scatter_cost{
    .phases = [](const SegmentShape& s) { return s.nodes() - 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_ring(ledger, blocks_by_ranks(s), 0); },
};

}  // namespace nexar::collectives
