// The ring's neighbours and the circular numbering that all ring algorithms share.
#pragma once

#include <vector>

#include "collectives/cost.hpp"
#include "collectives/link.hpp"

namespace nexar::collectives {

struct Ring {
    uint32_t nodes;
    uint32_t self;
    NodeIndex left, right;

    explicit Ring(const Lane& lane)
        : nodes(lane.nodes()),
          self(lane.self().value),
          left((self + nodes - 1) % nodes),
          right((self + 1) % nodes) {}

    // The node (or block) `steps` places behind this one; steps < 2 * nodes.
    uint32_t behind(uint32_t steps) const { return (self + 2 * nodes - steps) % nodes; }
};

// Bytes of one pass round the ring: each node sends to its right neighbour all blocks but the one of the node
// `skipped` places to its right.
inline void add_ring(Ledger& ledger, const std::vector<uint64_t>& blocks, uint32_t skipped) {
    const auto nodes = static_cast<uint32_t>(blocks.size());
    uint64_t total = 0;
    for (uint64_t b : blocks) total += b;
    for (uint32_t i = 0; i < nodes; ++i)
        ledger.add(i, (i + 1) % nodes, total - blocks[(i + skipped) % nodes]);
}

// Bytes of each node's block: the segment cut evenly, or one block per rank of the node.
inline std::vector<uint64_t> even_blocks(const SegmentShape& segment) {
    std::vector<uint64_t> out;
    for (uint32_t node = 0; node < segment.nodes(); ++node)
        out.push_back(part_of(segment.elements, segment.nodes(), node).count * segment.element_bytes);
    return out;
}
inline std::vector<uint64_t> blocks_by_ranks(const SegmentShape& segment) {
    std::vector<uint64_t> out;
    for (uint32_t node = 0; node < segment.nodes(); ++node) out.push_back(segment.block_bytes_on(node));
    return out;
}

// Bytes of each node's blocks between it and the root; `outwards`: away from the root.
inline void add_direct_blocks(Ledger& ledger, const SegmentShape& segment, bool outwards) {
    const uint32_t root = segment.root.value;
    for (uint32_t node = 0; node < segment.nodes(); ++node)
        if (node != root)
            ledger.add(outwards ? root : node, outwards ? node : root, segment.block_bytes_on(node));
}

// Bytes of a chain from the root round the ring; `outwards`: away from the root.
inline void add_chain(Ledger& ledger, const SegmentShape& segment, bool outwards) {
    const uint32_t nodes = segment.nodes(), root = segment.root.value;
    for (uint32_t position = 1; position < nodes; ++position) {
        const uint32_t farther = (position + root) % nodes;
        const uint32_t nearer = (position - 1 + root) % nodes;
        ledger.add(outwards ? nearer : farther, outwards ? farther : nearer, segment.bytes());
    }
}

}  // namespace nexar::collectives
