// What both scan algorithms share: the ranks of a node, and the reduction of the ranks so far.
//
// Invariant: the ranks are combined one after the other in rank order, each rounded to the type. So an
// operator need not be commutative, and the bits depend neither on the placement nor on the algorithm.
#pragma once

#include <vector>

#include "collectives/layout.hpp"
#include "collectives/link.hpp"
#include "task/task.hpp"

namespace nexar::collectives {

struct ScanRank {
    Extents in, out;      // out: empty on rank 0 of an exclusive scan; may be the memory of `in`
    uint64_t scalar = 0;  // if the scan premultiplies
};

// A scan on one node: rank r's output becomes the reduction of the inputs of ranks 0 to r or, exclusive,
// r - 1.
struct Scan {
    const Layout* layout = nullptr;
    Vector<ScanRank> ranks;  // this node's, in rank order
    Arithmetic arithmetic;
    bool premultiplies = false;  // each rank's input by its scalar
    bool exclusive = false;
    uint32_t chunk_bytes = 0;  // of a transfer

    size_t bytes() const { return link::bytes_of(ranks[0].in); }
    // An input is not combined where it lies: products need memory, and an output that is the input's memory
    // would overwrite what an exclusive scan still has to combine.
    bool needs_spare() const;
    // Copies a rank's input, or the product with its scalar.
    Op& load(Lane& lane, Extents into, Extents in, uint64_t scalar) const;
};

// A run of bytes of a side; of a side that a rank lacks: nothing.
Extents part_of_side(const Extents& side, size_t begin, size_t bytes);
// The same run of bytes of both sides.
ScanRank part_of_rank(const ScanRank& rank, size_t begin, size_t bytes);

// The reduction of all ranks up to some rank, and the step to the next one. Its memory is the caller's.
class ScanPrefix {
  public:
    // `spare`: empty where Scan::needs_spare is false.
    ScanPrefix(Lane& lane, const Scan& scan, Extents memory, Extents spare)
        : lane_(&lane), scan_(&scan), memory_(std::move(memory)), spare_(std::move(spare)) {}

    // Writes the next rank's output, if it has one, and includes the rank. `is_last`: the reduction is not
    // used any more.
    Task<> take(ScanRank rank, bool is_last);
    // Another node has put the reduction of all ranks before the next one there.
    void set_received() { empty_ = false; }
    const Extents& memory() const { return memory_; }

  private:
    Task<> include(Extents in, Vector<Extents> dsts);

    Lane* lane_;
    const Scan* scan_;
    Extents memory_, spare_;
    bool empty_ = true;  // of no rank yet
};

// Successive ranks on one node, as many as there are.
struct ScanRun {
    NodeIndex node;
    uint32_t ranks = 0;
    uint32_t number = 0;  // among those of its node
};
Vector<ScanRun> scan_runs(const Layout& layout);

}  // namespace nexar::collectives
