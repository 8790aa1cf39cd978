// Outgoing: a message that a machine of this folder sends.
#pragma once

#include "core/ids.hpp"
#include "wire/messages.hpp"

namespace nexar::membership {

// A SuspicionReport is in the control log; a probe without a connection is dropped, and the question has a
// deadline.
struct Outgoing {
    NodeId to;
    wire::Message message;
};

}  // namespace nexar::membership
