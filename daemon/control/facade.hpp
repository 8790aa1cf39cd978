// What nexarctl may ask of the daemon, as one interface; the node implements it. Questions and answers are
// JSON text, one line each (the format is docs/protocol/control.md). Thread: the control loop's.
#pragma once

#include <functional>
#include <string>

#include "core/result.hpp"

namespace nexar::control {

struct Caller {
    uint32_t uid = 0, gid = 0, pid = 0;
    bool may_change = false;  // root, the daemon's own user, or in its group: others may only look
};

// Exactly one call, now or later; later calls and calls after the caller hung up do nothing.
using Answer = std::function<void(Result<std::string> json)>;

class Facade {
  public:
    // `command`: "status", "groups", "ops", "plan", "token_create", "token_list", "token_revoke",
    // "cluster_init", "cluster_join", "cluster_show", "doctor", "config". `arguments`: a JSON object's text.
    // invalid_argument names a bad argument, unsupported an unknown command, permission a change that the
    // caller may not make.
    virtual void ask(const Caller& caller, const std::string& command, const std::string& arguments,
                     Answer answer) = 0;

  protected:
    ~Facade() = default;
};

}  // namespace nexar::control
