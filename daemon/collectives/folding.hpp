// Folding: where an algorithm needs a power of two of nodes. p is the largest one that is not above n; each
// of the first n-p pairs of nodes is folded into one before, and unfolded after.
#pragma once

#include <bit>
#include <cstdint>

#include "collectives/link.hpp"

namespace nexar::collectives {

// The role of one node: partner of others, or folded into its twin.
struct Folding {
    uint32_t participants, folded, self;

    Folding(uint32_t nodes, uint32_t node)
        : participants(std::bit_floor(nodes)), folded(nodes - participants), self(node) {}

    bool paired() const { return self < 2 * folded; }
    bool sits_out() const { return paired() && self % 2 == 0; }
    NodeIndex twin() const { return NodeIndex(self ^ 1); }
    uint32_t steps() const { return static_cast<uint32_t>(std::bit_width(participants)) - 1; }
    // Among the participants. Requires: it does not sit out.
    uint32_t index() const { return paired() ? self / 2 : self - folded; }
    NodeIndex node_at(uint32_t index) const {
        return NodeIndex(index < folded ? 2 * index + 1 : index + folded);
    }
    NodeIndex partner(uint32_t step) const { return node_at(index() ^ (1u << step)); }
};

}  // namespace nexar::collectives
