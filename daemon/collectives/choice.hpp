// What plan() chooses from, from plan function 3 on (docs/protocol/planning.md): the operation's algorithms
// in both classes, each with its predicted time, without those that a rule excludes.
#pragma once

#include <array>
#include <span>

#include "collectives/plan.hpp"

namespace nexar::collectives {

// A value of fixed size: plan() runs for every operation.
struct Candidates {
    std::array<Candidate, 6> list;
    size_t count = 0;
    std::span<Candidate> all() { return {list.data(), count}; }
    std::span<const Candidate> all() const { return {list.data(), count}; }
};

struct OpSize {
    uint64_t bytes = 0;      // of a rank's larger side
    uint64_t small_max = 0;  // of the small class
    uint32_t segments = 1;
    // What plan function 2 would do with it.
    Algorithm usual = Algorithm::local;
    Class usual_class = Class::small;
};

// Requires: two nodes or more, and bytes. Ensures: one is chosen.
Candidates candidates_of(const Shape& shape, const Layout& layout, const PlanTable& table, OpSize size);

// Of partials that are combined along the tree (docs/protocol/partials.md); local: the kind has none.
Algorithm deterministic(OpKind kind);

}  // namespace nexar::collectives
