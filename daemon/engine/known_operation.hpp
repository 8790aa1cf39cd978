// KnownOperation: what the engine found out of an operation that is submitted again and again, at its first
// submission (docs/protocol/shm.md [S23]). The request's owner keeps it as long as nothing of the request
// changes but its ticket.
#pragma once

#include <optional>

#include "collectives/plan.hpp"

namespace nexar::engine {

struct KnownOperation {
    bool checked = false;  // the group has accepted it before: its arguments need no second check
    // Of its collective, by whether a rank of this node is staged.
    std::optional<collectives::Plan> plan, staged_plan;
};

}  // namespace nexar::engine
