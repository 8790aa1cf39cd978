// Ring all-gather: every block passes the ring once, from its node to that node's left neighbour.
//
// Steps: n-1. Bytes from node i to i+1: all blocks but block i+1.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> ring_all_gather(Lane& lane, Vector<Extents> blocks, uint32_t first_phase) {
    const Ring ring(lane);
    const uint32_t last = ring.nodes - 1;
    if (last == 0) co_return ok();
    Vector<Op*> ops;

    ops.push_back(&lane.send(ring.right, first_phase, blocks[ring.self]));
    for (uint32_t step = 0; step + 1 < last; ++step)
        ops.push_back(&lane.recv_copy_send(ring.left, ring.right, first_phase + step, first_phase + step + 1,
                                           blocks[ring.behind(step + 1)]));
    ops.push_back(&lane.recv_copy(ring.left, first_phase + last - 1, blocks[ring.behind(last)]));

    lane.await_together();
    co_await all(ops);
    co_return ok();
}

const Cost ring_all_gather_cost{
    .phases = [](const SegmentShape& s) { return s.nodes() - 1; },
    .bytes = [](Ledger& ledger, const SegmentShape& s) { add_ring(ledger, blocks_by_ranks(s), 1); },
};

}  // namespace nexar::collectives
