// group_key: opens with the same key form one group (docs/protocol/rendezvous.md). A hash: the job secret is
// never sent.
#pragma once

#include "engine/ports.hpp"
#include "wire/messages.hpp"

namespace nexar::node {

wire::GroupKey group_key(const engine::OpenRequest& request, const NodeId& self);

}  // namespace nexar::node
