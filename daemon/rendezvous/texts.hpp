// What a process is told when its group never filled.
#pragma once

#include <functional>
#include <string>

#include "core/result.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

// Who is there and who is missing [R11]. `status`: the leader's answer, or nothing if it gave none.
Error group_incomplete(const wire::GroupOpen& open, const wire::GroupStatus* status,
                       const std::string& trouble, const std::function<std::string(const NodeId&)>& name_of);

}  // namespace nexar::rendezvous
