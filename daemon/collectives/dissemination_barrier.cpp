// Dissemination barrier (Hensgen, Finkel, Manber, "Two algorithms for barrier synchronization", 1988): in
// round k node i notifies node i + 2^k that node i, and every node that notified it before, have arrived.
//
// Steps: ceil(log2 n), any n. Bytes: 1 per node and step (a transfer of nothing would send nothing).
#include <bit>

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"

namespace nexar::collectives {

Task<> dissemination_barrier(Lane& lane, uint32_t first_phase) {
    const uint32_t n = lane.nodes();
    const uint32_t self = lane.self().value;
    if (n == 1) co_return ok();

    Vector<Op*> rounds;
    for (uint32_t distance = 1; distance < n; distance *= 2) {
        Extents into{lane.scratch(1)};
        const NodeIndex from((self + n - distance) % n);
        const auto round = static_cast<uint32_t>(rounds.size());
        rounds.push_back(&lane.recv_copy(from, first_phase + round, std::move(into)));
    }

    const Extents arrived{lane.scratch(1)};
    for (uint32_t round = 0; round < rounds.size(); ++round) {
        lane.send(NodeIndex((self + (1u << round)) % n), first_phase + round, arrived);
        co_await done(*rounds[round]);
    }
    co_return ok();
}

const Cost dissemination_barrier_cost{
    .phases = [](const SegmentShape& s) { return static_cast<uint32_t>(std::bit_width(s.nodes() - 1)); },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            for (uint32_t i = 0; i < s.nodes(); ++i)
                for (uint32_t distance = 1; distance < s.nodes(); distance *= 2)
                    ledger.add(i, (i + distance) % s.nodes(), 1);
        },
};

}  // namespace nexar::collectives
