// Pairwise all-to-all: every node exchanges with all other nodes, `window` of them at the same time. Nothing
// is forwarded. Node i begins with node i+1, so that not all nodes send to the same one first; as all take
// the others in this order, none waits for one that waits for it.
//
// Steps: 1 for each `window` of the other nodes. Bytes from node i to node j: a block from each rank of i to
// each rank of j. A pair has one transfer, or several where one would be longer than a transfer may be.
#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/pairwise.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {
namespace {

constexpr uint32_t window = 16;

}  // namespace

Task<> pairwise_all_to_all(Lane& lane, Vector<Extents> outgoing, Vector<Extents> incoming,
                           size_t transfer_bytes_max, uint32_t first_phase) {
    const Ring ring(lane);
    Vector<Vector<Op*>> ops(ring.nodes);  // by distance
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        if (distance > window) co_await all(ops[distance - window]);
        const NodeIndex from(ring.behind(distance)), to((ring.self + distance) % ring.nodes);
        Vector<Op*>& posted = ops[distance];
        for_each_transfer(incoming[from.value], transfer_bytes_max, first_phase,
                          [&](uint32_t phase, Extents memory) {
                              posted.push_back(&lane.recv_copy(from, phase, std::move(memory)));
                          });
        for_each_transfer(outgoing[to.value], transfer_bytes_max, first_phase,
                          [&](uint32_t phase, Extents memory) {
                              posted.push_back(&lane.send(to, phase, std::move(memory)));
                          });
    }
    for (const Vector<Op*>& posted : ops) co_await all(posted);
    co_return ok();
}

const Cost pairwise_all_to_all_cost{
    .phases =
        [](const SegmentShape& s) {
            uint64_t ranks = 0;  // of the node with the most ranks
            for (uint32_t node = 0; node < s.nodes(); ++node)
                ranks = std::max<uint64_t>(ranks, s.ranks_on(node));
            const uint64_t bytes_max = uint64_t{link::transfer_chunks_max} * s.chunk_bytes;
            return static_cast<uint32_t>(
                std::max<uint64_t>(1, (ranks * ranks * s.bytes() + bytes_max - 1) / bytes_max));
        },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            for (uint32_t from = 0; from < s.nodes(); ++from)
                for (uint32_t to = 0; to < s.nodes(); ++to)
                    if (from != to)
                        ledger.add(from, to, uint64_t{s.ranks_on(from)} * s.ranks_on(to) * s.bytes());
        },
};

}  // namespace nexar::collectives
