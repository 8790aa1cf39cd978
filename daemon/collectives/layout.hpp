// Layout: the node of each rank. Ranks may interleave over nodes in any way; nodes are numbered by their
// first rank, so all daemons of the group have the same numbers. A value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/link.hpp"
#include "reduce/partials.hpp"

namespace nexar::collectives {

// Elements [begin, begin + count) of an op's memory.
struct ElementRange {
    uint64_t begin = 0;
    uint64_t count = 0;
    bool operator==(const ElementRange&) const = default;
};

// Part `index` of `count` elements that are cut into `parts`: contiguous, in order; sizes differ by at
// most 1.
ElementRange part_of(uint64_t count, uint32_t parts, uint32_t index);

// The place of each rank's block in a buffer that has one block for each rank, in elements. Uniform: each
// block has the op's count, one after the other.
class Blocks {
  public:
    Blocks() = default;
    explicit Blocks(uint64_t each) : each_(each) {}
    ElementRange of(uint32_t rank) const { return {rank * each_, each_}; }

  private:
    uint64_t each_ = 0;
};

class Layout {
  public:
    Layout() = default;
    // node_of_rank[r]: any number, the same for ranks of the same node.
    explicit Layout(std::span<const uint32_t> node_of_rank);

    uint32_t size() const { return static_cast<uint32_t>(node_of_.size()); }
    uint32_t nodes() const { return static_cast<uint32_t>(ranks_of_.size()); }
    NodeIndex node_of(uint32_t rank) const { return node_of_[rank]; }
    // In rank order; never empty.
    std::span<const uint32_t> ranks_on(NodeIndex node) const { return ranks_of_[node.value]; }
    // What a node sends the partials of (docs/protocol/partials.md).
    std::span<const reduce::RankRange> subtrees_on(NodeIndex node) const { return subtrees_of_[node.value]; }
    size_t subtrees() const { return subtrees_; }          // of all nodes
    size_t subtrees_max() const { return subtrees_max_; }  // of the node with the most

  private:
    std::vector<NodeIndex> node_of_;                           // by rank
    std::vector<std::vector<uint32_t>> ranks_of_;              // by node, in rank order
    std::vector<std::vector<reduce::RankRange>> subtrees_of_;  // the same
    size_t subtrees_ = 0, subtrees_max_ = 0;
};

}  // namespace nexar::collectives
