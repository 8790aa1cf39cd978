// BinomialTree: positions are counted from the root. The children of position v are v + 1, v + 2, v + 4, ...
// with steps below v's lowest set bit.
#pragma once

#include <bit>
#include <vector>

#include "collectives/cost.hpp"
#include "collectives/link.hpp"

namespace nexar::collectives {

class BinomialTree {
  public:
    BinomialTree(const Lane& lane, NodeIndex root) : BinomialTree(lane.nodes(), lane.self(), root) {}
    BinomialTree(uint32_t nodes, NodeIndex self, NodeIndex root)
        : nodes_(nodes), root_(root.value), position_((self.value + nodes_ - root_) % nodes_) {}

    bool is_root() const { return position_ == 0; }
    NodeIndex parent() const { return at(position_ & (position_ - 1)); }
    // Nearest (smallest subtree) first.
    std::vector<NodeIndex> children() const {
        std::vector<NodeIndex> out;
        const uint32_t limit = is_root() ? nodes_ : position_ & (~position_ + 1);
        for (uint32_t step = 1; step < limit && position_ + step < nodes_; step *= 2)
            out.push_back(at(position_ + step));
        return out;
    }

  private:
    NodeIndex at(uint32_t position) const { return NodeIndex((position + root_) % nodes_); }

    uint32_t nodes_, root_, position_;
};

// Bytes of the tree; `outwards`: away from the root.
inline void add_binomial(Ledger& ledger, const SegmentShape& segment, bool outwards) {
    const uint32_t nodes = segment.nodes(), root = segment.root.value;
    for (uint32_t position = 1; position < nodes; ++position) {
        const uint32_t child = (position + root) % nodes;
        const uint32_t parent = ((position & (position - 1)) + root) % nodes;
        ledger.add(outwards ? parent : child, outwards ? child : parent, segment.bytes());
    }
}

}  // namespace nexar::collectives
