// What the deterministic algorithms share (docs/protocol/partials.md): how a segment is cut into steps, so
// that the scratch of its partials is bounded, and who owns which elements of a step. Pure: the same on all
// nodes.
#pragma once

#include <span>
#include <vector>

#include "collectives/cost.hpp"
#include "reduce/partials.hpp"

namespace nexar::collectives {

// Of a step's partials on one node: of those that it makes, and of those that arrive there; unless one
// element has more [Z6].
constexpr uint64_t tree_step_bytes_max = 8 * 1024 * 1024;

class TreeCut {
  public:
    // `elements`: of the segment, with those of all blocks. `gather_phases`: what follows a step's exchange.
    // `owned`: how many of the elements each node owns, at most; empty: an even share of every step.
    TreeCut(const Layout& layout, uint64_t elements, uint32_t partial_bytes, uint32_t chunk_bytes,
            uint32_t gather_phases, std::span<const uint64_t> owned = {});

    uint32_t steps() const { return static_cast<uint32_t>((elements_ + step_ - 1) / step_); }
    ElementRange step(uint32_t index) const;
    uint32_t exchange_phase(uint32_t step) const { return step * (exchange_phases_ + gather_phases_); }
    uint32_t gather_phase(uint32_t step) const { return exchange_phase(step) + exchange_phases_; }
    uint32_t phases() const { return exchange_phase(steps()); }

  private:
    uint64_t elements_, step_;
    uint32_t exchange_phases_, gather_phases_;
};

// A node's elements of a step of an operation without blocks: even parts.
ElementRange even_share(ElementRange step, uint32_t nodes, uint32_t node);

// Bytes of the exchanges: from each node, for each of its subtrees, the elements of each other node.
// elements_of(node): in the whole segment.
template <class ElementsOf>
void add_tree_exchange(Ledger& ledger, const SegmentShape& segment, ElementsOf elements_of) {
    for (uint32_t from = 0; from < segment.nodes(); ++from) {
        const uint64_t subtrees = segment.layout.subtrees_on(NodeIndex(from)).size();
        for (uint32_t to = 0; to < segment.nodes(); ++to)
            if (from != to) ledger.add(from, to, subtrees * elements_of(to) * segment.partial_bytes);
    }
}

// Elements of each node's shares in all steps of a segment.
std::vector<uint64_t> even_shares(const SegmentShape& segment, const TreeCut& cut);

}  // namespace nexar::collectives
