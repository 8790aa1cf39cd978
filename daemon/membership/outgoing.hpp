// Outgoing: a message that a machine of this folder sends.
#pragma once

#include "core/ids.hpp"
#include "wire/messages.hpp"

namespace nexar::membership {

// Best effort: to a node without a connection it is dropped; every machine has a deadline for that.
struct Outgoing {
    NodeId to;
    wire::Message message;
};

}  // namespace nexar::membership
