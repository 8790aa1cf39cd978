// Cost of an algorithm between nodes: its phases, and the bytes between every two nodes. Each algorithm's
// file defines its own. plan() uses the phases, predict_bytes() the bytes, which tests compare with those
// sent.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/layout.hpp"
#include "core/counts.hpp"

namespace nexar::collectives {

// One segment of an op.
struct SegmentShape {
    const Layout& layout;
    uint64_t elements = 0;
    uint32_t element_bytes = 1;
    NodeIndex root;
    uint32_t chunk_bytes = 0;
    uint64_t begin = 0;               // its first element
    const Counts* counts = nullptr;   // null: the operation has no list of counts
    std::span<const Counts> sends{};  // by rank: what it sends; one: every rank does; empty: not known

    bool has_counts = false;     // the operation has, known here or not
    uint32_t partial_bytes = 0;  // of an element of a partial; of others the element's own

    uint32_t nodes() const { return layout.nodes(); }
    uint64_t bytes() const { return elements * element_bytes; }
    uint32_t ranks_on(uint32_t node) const {
        return static_cast<uint32_t>(layout.ranks_on(NodeIndex(node)).size());
    }
    // Of the blocks of a node's ranks, where there are blocks.
    uint64_t block_bytes_on(uint32_t node) const {
        if (counts == nullptr) return ranks_on(node) * bytes();
        uint64_t own = 0;
        for (const uint32_t rank : layout.ranks_on(NodeIndex(node)))
            own += counts->part(rank, begin, begin + elements).count;
        return own * element_bytes;
    }
    // Of all blocks from the ranks of one node to those of another. Requires: `sends` is known.
    uint64_t sent_bytes(uint32_t from, uint32_t to) const {
        uint64_t sent = 0;
        for (const uint32_t sender : layout.ranks_on(NodeIndex(from)))
            for (const uint32_t receiver : layout.ranks_on(NodeIndex(to)))
                sent += sends[sends.size() == 1 ? 0 : sender].of(receiver);
        return sent * element_bytes;
    }
};

// Bytes per node pair.
class Ledger {
  public:
    Ledger(std::vector<uint64_t>& bytes, uint32_t nodes) : bytes_(bytes), nodes_(nodes) {}
    void add(uint32_t from, uint32_t to, uint64_t n) { bytes_[from * nodes_ + to] += n; }

  private:
    std::vector<uint64_t>& bytes_;
    uint32_t nodes_;
};

struct Cost {
    uint32_t (*phases)(const SegmentShape& segment);  // upper limit of the phase numbers that a lane uses
    void (*bytes)(Ledger& ledger, const SegmentShape& segment);
};

// In the file of each algorithm.
#define NEXAR_ALGORITHM(name, text) extern const Cost name##_cost;
#include "operations.def"

}  // namespace nexar::collectives
