// Cost of an algorithm between nodes: its phases, and the bytes between every two nodes. Each algorithm's
// file defines its own. plan() uses the phases, predict_bytes() the bytes, which tests compare with those
// sent.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/layout.hpp"

namespace nexar::collectives {

// One segment of an op.
struct SegmentShape {
    const Layout& layout;
    uint64_t elements = 0;
    uint32_t element_bytes = 1;
    NodeIndex root;
    uint32_t chunk_bytes = 0;

    uint32_t nodes() const { return layout.nodes(); }
    uint64_t bytes() const { return elements * element_bytes; }
    uint32_t ranks_on(uint32_t node) const {
        return static_cast<uint32_t>(layout.ranks_on(NodeIndex(node)).size());
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
