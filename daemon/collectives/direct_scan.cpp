// Direct scan, for small data: every node sends its ranks' inputs to all nodes that have a later rank, and
// each node takes all ranks up to its last one.
//
// Steps: 1. Bytes from node i to node j: the input of each rank of i below j's last rank. Scratch: an input
// of each rank up to the last one here, and the reduction so far.
#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {
namespace {

// How many of a node's ranks come before the last one of another node.
uint32_t ranks_before_last(const Layout& layout, NodeIndex from, NodeIndex to) {
    const uint32_t last = layout.ranks_on(to).back();
    uint32_t ranks = 0;
    for (const uint32_t rank : layout.ranks_on(from)) ranks += rank < last ? 1 : 0;
    return ranks;
}

}  // namespace

Task<> direct_scan(Lane& lane, Scan scan) {
    const Layout& layout = *scan.layout;
    const Ring ring(lane);
    const auto own = layout.ranks_on(lane.self());
    const size_t bytes = scan.bytes();
    // By rank, so that an output that is an input's memory overwrites nothing that is still needed.
    const Place inputs = lane.scratch((own.back() + 1) * bytes).at;
    const auto input_of = [&](uint32_t rank) { return Extents{{inputs + rank * bytes, bytes}}; };
    const auto inputs_of = [&](NodeIndex node, uint32_t ranks) {
        Extents out;
        for (const uint32_t rank : layout.ranks_on(node).first(ranks)) out.push_back(input_of(rank)[0]);
        return out;
    };

    Vector<Op*> arrivals;
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        const NodeIndex from(ring.behind(distance));
        const uint32_t ranks = ranks_before_last(layout, from, lane.self());
        arrivals.push_back(&lane.recv_copy(from, 0, inputs_of(from, ranks)));
    }
    Vector<Op*> loads;
    for (size_t i = 0; i < own.size(); ++i)
        loads.push_back(&scan.load(lane, input_of(own[i]), scan.ranks[i].in, scan.ranks[i].scalar));
    co_await all(loads);
    for (uint32_t distance = 1; distance < ring.nodes; ++distance) {
        const NodeIndex to((ring.self + distance) % ring.nodes);
        lane.send(to, 0, inputs_of(lane.self(), ranks_before_last(layout, lane.self(), to)));
    }
    co_await all(arrivals);

    scan.premultiplies = false;  // that is done
    ScanPrefix prefix(lane, scan, {lane.scratch(bytes)}, {});
    size_t next = 0;  // of this node's ranks
    for (uint32_t rank = 0; rank <= own.back(); ++rank) {
        ScanRank taken{input_of(rank), {}};
        if (rank == own[next]) taken.out = scan.ranks[next++].out;
        co_await prefix.take(std::move(taken), rank == own.back());
    }
    co_return ok();
}

const Cost direct_scan_cost{
    .phases = [](const SegmentShape&) -> uint32_t { return 1; },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            for (uint32_t from = 0; from < s.nodes(); ++from)
                for (uint32_t to = 0; to < s.nodes(); ++to)
                    if (from != to)
                        ledger.add(from, to,
                                   ranks_before_last(s.layout, NodeIndex(from), NodeIndex(to)) * s.bytes());
        },
};

}  // namespace nexar::collectives
