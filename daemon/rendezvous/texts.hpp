// What a process is told when its group never filled.
#pragma once

#include <functional>
#include <string>

#include "core/result.hpp"
#include "core/time.hpp"
#include "wire/messages.hpp"

namespace nexar::rendezvous {

struct Unfilled {
    const wire::GroupOpen& open;
    bool local;           // without a job_secret
    Duration waited;      // as long as the open was to wait
    std::string trouble;  // why the last attempt to form it was called off
};

// Who is there and who is missing [R11]. `status`: the leader's answer, or nothing if it gave none.
Error group_incomplete(const Unfilled& unfilled, const wire::GroupStatus* status,
                       const std::function<std::string(const NodeId&)>& name_of);

}  // namespace nexar::rendezvous
