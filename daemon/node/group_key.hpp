// The key of a group, docs/protocol/rendezvous.md: who may find whom. The secret itself never travels.
#pragma once

#include "engine/ports.hpp"
#include "wire/messages.hpp"

namespace nexar::node {

wire::GroupKey group_key(const engine::OpenRequest& request, const NodeId& self);

}  // namespace nexar::node
