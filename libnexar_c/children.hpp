// Children of a group: the checked arguments of a split or dup, and its request.
#pragma once

#include "operation.hpp"

namespace nexar::c {

// nexar_child_options, checked; in the daemon's units.
struct ChildOptions {
    OpOptions call;
    int64_t collective_ns = -1, barrier_ns = -1, rpc_ns = -1;  // -1: not set; 0: none
};
nexar_child_options child_defaults();
Result<ChildOptions> read_child_options(uint8_t kind, const nexar_child_options* given);

// Which child of its parent.
struct ChildOf {
    uint8_t kind;         // NEXAR_OP_GROUP_...
    uint32_t colour = 0;  // NEXAR_COLOUR_UNDEFINED: none
    int64_t key = 0;
};
// The child's handle exists at once; the application gets it when the request has completed with NEXAR_OK.
Result<Slot> start_child(Session& session, const Group& parent, const ChildOf& which,
                         const ChildOptions& options, bool blocking);

}  // namespace nexar::c
