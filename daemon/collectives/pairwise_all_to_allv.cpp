// Pairwise all-to-all of blocks whose lengths only their two ranks know. Every node sends every other one the
// counts of its blocks for it, and the blocks behind them. It receives blocks of a node only when it has
// found that node's counts to be those that it expects, so a difference is never data of another length.
//
// Steps: 2. Bytes from node i to node j: 8 for each pair of a rank of i and one of j, and that pair's block.
#include <algorithm>

#include "collectives/algorithms.hpp"
#include "collectives/pairwise.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {

Task<> pairwise_all_to_allv(Lane& lane, CountedExchange exchange) {
    const Ring ring(lane);
    const size_t most = exchange.transfer_bytes_max;
    Vector<Op*> arrivals, ops;
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        const NodeIndex from(ring.behind(distance));
        arrivals.push_back(&lane.recv_copy(from, 0, exchange.incoming_counts[from.value]));
    }
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        const NodeIndex to((ring.self + distance) % ring.nodes);
        ops.push_back(&lane.send(to, 0, exchange.outgoing_counts[to.value]));
        for_each_transfer(exchange.outgoing[to.value], most, 1, [&](uint32_t phase, Extents memory) {
            ops.push_back(&lane.send(to, phase, std::move(memory)));
        });
    }
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        const NodeIndex from(ring.behind(distance));
        co_await done(*arrivals[distance - 1]);
        if (auto agreed = exchange.check(from, exchange.incoming_counts[from.value]); !agreed)
            co_return fail(std::move(agreed.error()));
        for_each_transfer(exchange.incoming[from.value], most, 1, [&](uint32_t phase, Extents memory) {
            ops.push_back(&lane.recv_copy(from, phase, std::move(memory)));
        });
    }
    co_await all(ops);
    co_return ok();
}

const Cost pairwise_all_to_allv_cost{
    // A node does not know them, and need not: an operation is one segment, which has all phases.
    .phases = [](const SegmentShape& s) -> uint32_t {
        if (s.sends.empty()) return UINT32_MAX;
        uint64_t most = 0;
        for (uint32_t from = 0; from < s.nodes(); ++from)
            for (uint32_t to = 0; to < s.nodes(); ++to)
                if (from != to) most = std::max(most, s.sent_bytes(from, to));
        const uint64_t bytes_max = uint64_t{link::transfer_chunks_max} * s.chunk_bytes;
        return static_cast<uint32_t>(1 + (most + bytes_max - 1) / bytes_max);
    },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            for (uint32_t from = 0; from < s.nodes(); ++from)
                for (uint32_t to = 0; to < s.nodes(); ++to)
                    if (from != to)
                        ledger.add(
                            from, to,
                            sizeof(uint64_t) * s.ranks_on(from) * s.ranks_on(to) + s.sent_bytes(from, to));
        },
};

}  // namespace nexar::collectives
