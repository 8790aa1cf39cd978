// What an algorithm between nodes costs: its steps, and the bytes between every two nodes. Each algorithm's
// file says so for itself. plan() counts phases with it, and predict_bytes() bytes, which tests compare with
// what was sent.
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
    uint32_t (*phases)(const SegmentShape& segment);  // phase numbers that a lane uses for it, at most
    void (*bytes)(Ledger& ledger, const SegmentShape& segment);
};

// In the file of each algorithm.
#define NEXAR_ALGORITHM(name, text) extern const Cost name##_cost;
#include "operations.def"

}  // namespace nexar::collectives
