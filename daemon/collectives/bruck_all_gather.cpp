// Logarithmic all-gather, for small data, where latency dominates (Bruck, Ho, Kipnis, Upfal, Weathersby,
// "Efficient Algorithms for All-to-All Communications", 1997; blocks arrive in their places, so nothing is
// rotated): node i has the blocks from its own on, twice as many after each step.
//
// Steps: ceil(log2 n). Bytes: in step k from node i to i - 2^k the first min(2^k, n - 2^k) blocks that i has;
// in all n-1 blocks to each node, as in a ring.
#include <algorithm>
#include <bit>

#include "collectives/algorithms.hpp"
#include "collectives/ring.hpp"

namespace nexar::collectives {
namespace {

uint32_t bruck_steps(uint32_t nodes) {
    return static_cast<uint32_t>(std::bit_width(nodes - 1));
}
// The blocks of a step, from `first` on round the ring.
template <class Take>
void for_each_block(uint32_t nodes, uint32_t first, uint32_t step, Take take) {
    const uint32_t blocks = std::min(1u << step, nodes - (1u << step));
    for (uint32_t i = 0; i < blocks; ++i) take((first + i) % nodes);
}

}  // namespace

Task<> bruck_all_gather(Lane& lane, Vector<Extents> blocks) {
    const Ring ring(lane);
    const uint32_t steps = bruck_steps(ring.nodes);
    const auto from = [&](uint32_t first, uint32_t step) {
        Extents out;
        for_each_block(ring.nodes, first, step, [&](uint32_t block) {
            out.insert(out.end(), blocks[block].begin(), blocks[block].end());
        });
        return out;
    };

    // The whole receive schedule goes out before the first wait.
    Vector<Op*> arrivals, sends;
    for (uint32_t step = 0; step < steps; ++step) {
        const uint32_t other = (ring.self + (1u << step)) % ring.nodes;
        arrivals.push_back(&lane.recv_copy(NodeIndex(other), step, from(other, step)));
    }
    for (uint32_t step = 0; step < steps; ++step) {
        if (step > 0) co_await done(*arrivals[step - 1]);
        const NodeIndex to(ring.behind(1u << step));
        sends.push_back(&lane.send(to, step, from(ring.self, step)));
    }
    co_await all(arrivals);
    co_await all(sends);
    co_return ok();
}

const Cost bruck_all_gather_cost{
    .phases = [](const SegmentShape& s) { return bruck_steps(s.nodes()); },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            for (uint32_t node = 0; node < s.nodes(); ++node)
                for (uint32_t step = 0; step < bruck_steps(s.nodes()); ++step) {
                    const uint32_t to = (node + s.nodes() - (1u << step)) % s.nodes();
                    for_each_block(s.nodes(), node, step,
                                   [&](uint32_t block) { ledger.add(node, to, s.block_bytes_on(block)); });
                }
        },
};

}  // namespace nexar::collectives
