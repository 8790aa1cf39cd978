// Counts: a list with a count per rank: of an operation, the same on all ranks, or of what one rank sends or
// receives (docs/protocol/counts.md).
// The ranks' blocks are packed: one after the other, in rank order. A value. Also used by libnexar_c.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/operations.hpp"
#include "core/result.hpp"

namespace nexar {

class Counts {
  public:
    // An error: their sum is 2^63 or more.
    static Result<Counts> of(std::span<const uint64_t> counts);

    uint32_t size() const { return static_cast<uint32_t>(begins_.size() - 1); }
    uint64_t of(uint32_t rank) const { return begins_[rank + 1] - begins_[rank]; }
    uint64_t begin(uint32_t rank) const { return begins_[rank]; }
    uint64_t sum() const { return begins_.back(); }
    // For comparison with other nodes' lists; never 0. Equal digests do not make lists equal.
    uint64_t digest() const;
    bool operator==(const Counts&) const = default;

    // The part of a rank's block among the packed elements [first, end); nothing: an empty part at `first`.
    struct Part {
        uint64_t begin = 0, count = 0;
    };
    Part part(uint32_t rank, uint64_t first, uint64_t end) const;

  private:
    std::vector<uint64_t> begins_{0};  // of each rank's block, and the end of the last one
};

using CountsRef = std::shared_ptr<const Counts>;  // null: an operation without such a list

// The two lists of a rank that sends a block to each rank and receives one from each (all_to_allv). No other
// rank knows them. A value.
struct OwnCounts {
    Counts sends, receives;
    bool operator==(const OwnCounts&) const = default;
};
using OwnCountsRef = std::shared_ptr<const OwnCounts>;

// Of the sides whose length follows from a list; either may be null.
inline SideElements own_elements(const Counts* counts, const OwnCounts* own, uint32_t rank) {
    if (own != nullptr) return {own->sends.sum(), own->receives.sum()};
    const uint64_t block = counts != nullptr ? counts->of(rank) : 0;
    return {block, block};
}

}  // namespace nexar
