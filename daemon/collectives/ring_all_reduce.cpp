// Ring all-reduce (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009): a ring
// reduce-scatter, after which node i has finished block i, and a ring all-gather that begins with that block.
//
// Steps: 2(n-1). Bytes from node i to i+1: the data twice, less block i in the first half and block i+1 in
// the second: 2(n-1)/n of the data for even blocks, whatever n is.
//
// Everything is posted at once; the link forwards chunks without the algorithm. The second half may receive
// into a block whose partial value the first half still sends. This is safe: chunk c of the finished block
// includes chunk c of the partial value, so the partial chunk has been applied, and a repeated send of it has
// no effect.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> ring_all_reduce(Lane& lane, Vector<Extents> blocks, Arithmetic arithmetic) {
    const Ring ring(lane);
    const uint32_t last = ring.nodes - 1;  // steps of each half; phases [0, last) and [last, 2 * last)
    if (last == 0) co_return ok();
    Vector<Op*> ops;

    ops.push_back(&lane.send(ring.right, 0, blocks[ring.behind(1)]));
    // Ends with block `self`, whose forward begins the second half.
    for (uint32_t step = 0; step < last; ++step)
        ops.push_back(&lane.recv_reduce_send(ring.left, ring.right, step, step + 1,
                                             blocks[ring.behind(step + 2)], arithmetic));
    for (uint32_t step = 0; step + 1 < last; ++step)
        ops.push_back(&lane.recv_copy_send(ring.left, ring.right, last + step, last + step + 1,
                                           blocks[ring.behind(step + 1)]));
    ops.push_back(&lane.recv_copy(ring.left, 2 * last - 1, blocks[ring.behind(last)]));

    lane.await_together();
    co_await all(ops);
    co_return ok();
}

const Cost ring_all_reduce_cost{
    .phases = [](const SegmentShape& s) { return 2 * (s.nodes() - 1); },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            add_ring(ledger, even_blocks(s), 0);
            add_ring(ledger, even_blocks(s), 1);
        },
};

}  // namespace nexar::collectives
