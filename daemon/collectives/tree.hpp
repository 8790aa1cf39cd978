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
        : nodes_(nodes), root_(root.value), position_(position_of(self)) {}

    bool is_root() const { return position_ == 0; }
    NodeIndex parent() const { return at(position_ & (position_ - 1)); }
    // Nearest (smallest subtree) first.
    Vector<NodeIndex> children() const {
        Vector<NodeIndex> out;
        for (uint32_t step = 1; step < reach(position_) && position_ + step < nodes_; step *= 2)
            out.push_back(at(position_ + step));
        return out;
    }
    // The node and all nodes below it, the node first.
    Vector<NodeIndex> subtree(NodeIndex of) const {
        const uint32_t top = position_of(of);
        Vector<NodeIndex> out;
        for (uint32_t i = 0; i < reach(top) && top + i < nodes_; ++i) out.push_back(at(top + i));
        return out;
    }
    // Their blocks, in that order.
    link::Extents subtree_blocks(NodeIndex of, const Vector<link::Extents>& blocks) const {
        link::Extents out;
        for (const NodeIndex node : subtree(of))
            out.insert(out.end(), blocks[node.value].begin(), blocks[node.value].end());
        return out;
    }

  private:
    // Positions from one to that of its next sibling.
    uint32_t reach(uint32_t position) const { return position == 0 ? nodes_ : position & (~position + 1); }
    uint32_t position_of(NodeIndex node) const { return (node.value + nodes_ - root_) % nodes_; }
    NodeIndex at(uint32_t position) const { return NodeIndex((position + root_) % nodes_); }

    uint32_t nodes_, root_, position_;
};

// Bytes of a tree over whose edges the blocks of the subtree below travel; `outwards`: away from the root.
inline void add_binomial_blocks(Ledger& ledger, const SegmentShape& segment, bool outwards) {
    for (uint32_t node = 0; node < segment.nodes(); ++node) {
        const BinomialTree tree(segment.nodes(), NodeIndex(node), segment.root);
        if (tree.is_root()) continue;
        uint64_t bytes = 0;
        for (const NodeIndex below : tree.subtree(NodeIndex(node)))
            bytes += segment.block_bytes_on(below.value);
        const uint32_t parent = tree.parent().value;
        ledger.add(outwards ? parent : node, outwards ? node : parent, bytes);
    }
}

// Bytes of the whole data over each edge; `outwards`: away from the root.
inline void add_binomial(Ledger& ledger, const SegmentShape& segment, bool outwards) {
    const uint32_t nodes = segment.nodes(), root = segment.root.value;
    for (uint32_t position = 1; position < nodes; ++position) {
        const uint32_t child = (position + root) % nodes;
        const uint32_t parent = ((position & (position - 1)) + root) % nodes;
        ledger.add(outwards ? parent : child, outwards ? child : parent, segment.bytes());
    }
}

}  // namespace nexar::collectives
