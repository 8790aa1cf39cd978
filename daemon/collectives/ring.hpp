// The ring's neighbours and the circular numbering that all ring algorithms share.
#pragma once

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

}  // namespace nexar::collectives
