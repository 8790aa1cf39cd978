// From times of operations to the parameters of the cost model (docs/protocol/planning.md, "How tune
// measures"). Pure.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/cost_model.hpp"
#include "core/result.hpp"

namespace nexarctl {

// An operation between nodes: its terms by the group's own plan, and its time.
struct Timed {
    nexar::collectives::Terms terms;
    uint64_t ns = 0;
};
struct Times {
    uint64_t host_ns = 0;    // of an operation that stays on the host: doorbell, hand-over, wake-up
    uint32_t memory_ps = 1;  // per byte combined
    Timed small_short, small_long, bulk_short, bulk_long;
    Timed small_scatter, small_steps;  // short ones that differ by their starts alone
    // Two hosts exchange so many bytes; every host sends as many to the next, and has as many of the one
    // before.
    uint64_t shift_bytes = 0, pair_ns = 0, shift_ns = 0;
};
// One size, by both algorithms.
struct Raced {
    uint64_t bytes = 0, doubling_ns = 0, ring_ns = 0;
};

// Ensures: CostModel::check() accepts it.
nexar::collectives::CostModel fit(const Times& times, uint32_t nodes);
// The limit of recursive doubling, as it is kept (Tuning), by which these sizes together lose least to the
// quicker algorithm of each. 0: there are none. Requires: by rising bytes, and no time is 0.
uint32_t doubling_limit(std::span<const Raced> sizes, uint32_t nodes);

}  // namespace nexarctl
