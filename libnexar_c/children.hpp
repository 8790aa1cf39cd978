// Children of a group: the checked arguments of a split or dup, and its request.
#pragma once

#include <span>

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
Result<Taken> prepare_child(Session& session, const Group& parent, const ChildOf& which,
                            const ChildOptions& options, Use use);

// nexar_create_options, checked.
struct CreateOptions {
    uint64_t tag = 0, user_data = 0;
    int64_t timeout_ns = -1;
    int64_t collective_ns = -1, barrier_ns = -1, rpc_ns = -1;
};
nexar_create_options create_defaults();
Result<CreateOptions> read_create_options(const nexar_create_options* given);
// The same for a group of listed ranks.
Result<Slot> start_creation(Session& session, const Group& parent, std::span<const uint32_t> ranks,
                            const CreateOptions& options, bool blocking);

}  // namespace nexar::c
