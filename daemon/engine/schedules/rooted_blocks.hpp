// The blocks of a gather or a scatter on one node: the memory of its ranks' blocks and, in a binomial tree,
// scratch memory for those that pass through on their way between the root and this node's subtree.
#pragma once

#include "collectives/tree.hpp"
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

class RootedBlocks {
  public:
    RootedBlocks(const TwoLevelOp& op, const Geometry& at)
        : op_(op), at_(at), root_(op.layout->node_of(op.descriptor.root)) {
        if (!is_tree() || is_root()) return;
        for (const collectives::NodeIndex node :
             collectives::BinomialTree(at.nodes(), op.self, root_).subtree(op.self))
            if (node != op.self) passing_.push_back(node);
    }

    collectives::NodeIndex root() const { return root_; }
    bool is_root() const { return op_.self == root_; }
    // Of scratch memory; 0 where no block passes through.
    size_t passing_bytes() const {
        size_t ranks = 0;
        for (const collectives::NodeIndex node : passing_) ranks += op_.layout->ranks_on(node).size();
        return ranks * at_.bytes();
    }
    // By node. `own`: the memory of this node's blocks. Requires: not at the root's node, whose ranks have
    // the memory of all blocks.
    std::vector<link::Extents> by_node(MeshLane& lane, link::Extents own) const {
        std::vector<link::Extents> out(at_.nodes());
        out[op_.self.value] = std::move(own);
        if (passing_bytes() == 0) return out;
        Place memory = lane.scratch(passing_bytes()).at;
        for (const collectives::NodeIndex node : passing_) {
            const size_t bytes = op_.layout->ranks_on(node).size() * at_.bytes();
            out[node.value] = {{memory, bytes}};
            memory += bytes;
        }
        return out;
    }

  private:
    bool is_tree() const {
        return op_.plan.algorithm == collectives::Algorithm::binomial_gather ||
               op_.plan.algorithm == collectives::Algorithm::binomial_scatter;
    }

    const TwoLevelOp& op_;
    const Geometry& at_;
    collectives::NodeIndex root_;
    std::vector<collectives::NodeIndex> passing_;  // the other nodes of this node's subtree
};

}  // namespace nexar::engine
