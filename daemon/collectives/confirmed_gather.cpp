// Confirmed gather: a ring all-gather, a decision of each node on what it has gathered, and a dissemination
// barrier, which no node leaves before every node has decided well.
//
// Steps: n-1, then ceil(log2 n). Bytes: those of the two.
#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"

namespace nexar::collectives {

Task<> confirmed_gather(Lane& lane, Vector<Extents> blocks, std::function<Task<>()> gathered) {
    const uint32_t rounds_begin = lane.nodes() - 1;
    co_await ring_all_gather(lane, std::move(blocks));
    co_await gathered();
    co_await dissemination_barrier(lane, rounds_begin);
    co_return ok();
}

const Cost confirmed_gather_cost{
    .phases =
        [](const SegmentShape& s) {
            return ring_all_gather_cost.phases(s) + dissemination_barrier_cost.phases(s);
        },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            ring_all_gather_cost.bytes(ledger, s);
            dissemination_barrier_cost.bytes(ledger, s);
        },
};

}  // namespace nexar::collectives
