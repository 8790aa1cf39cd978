// Reductions whose partial results keep more bits than the type: f32 of floats below 32 bits, otherwise the
// type itself. Values are widened, combined as partials, divided if it is an average, and rounded to the type
// once, at the end. Two orders: one after the other, or along a tree over the ranks that depends on their
// number only, so that the bits do not depend on who combines which part of it.
//
// The tree of n ranks: a range of more than one is split at the largest power of two below its length. So its
// ranges are those that begin at a multiple of a power of two and have that length, cut at n.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reduce/dtype.hpp"

namespace nexar::reduce {

// Ranks [begin, end).
struct RankRange {
    uint32_t begin = 0, end = 0;
    bool operator==(const RankRange&) const = default;
};

// Whether two ranges are the halves of one range of the tree.
bool are_halves(RankRange left, RankRange right, uint32_t ranks);
// The largest ranges of the tree that have only these ranks, which are in order.
std::vector<RankRange> subtrees_of(std::span<const uint32_t> members, uint32_t ranks);

Dtype partial_type(Dtype dtype);

struct PartialSource {
    const void* at = nullptr;
    RankRange ranks;          // that it is of
    bool is_partial = false;  // otherwise it is a rank's values
};

struct PartialJob {
    std::span<void* const> dsts;          // each may be one of the sources, at the same position
    std::span<const PartialSource> srcs;  // in rank order
    std::span<const uint64_t> scalars;    // premul_sum: one for each source that is a rank's values
    size_t count = 0;
    Dtype dtype = Dtype::f32;
    ReduceOp op = ReduceOp::sum;  // sum or prod
    uint32_t tree_ranks = 0;      // of the tree; 0: one source after the other
    bool to_partial = false;      // the result stays a partial
    uint64_t divisor = 0;         // of an average; 0: it is none
};
// Requires: the sources have one root in the tree.
void combine_partials(const PartialJob& job);

// `count` elements; no overlap. NaNs become the target's one NaN. Of types that are their own partials: a
// copy.
void widen(void* partial, const void* values, size_t count, Dtype dtype);
void narrow(void* values, const void* partial, size_t count, Dtype dtype);

}  // namespace nexar::reduce
