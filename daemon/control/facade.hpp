// The commands of nexarctl, as one interface; the node implements it. Requests and answers are JSON texts,
// one line each (docs/protocol/control.md has the format). Thread: the control loop's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/result.hpp"

namespace nexar::control {

struct Caller {
    uint32_t uid = 0, gid = 0, pid = 0;
    bool may_change = false;  // root, the daemon's user, or a member of its group; all others may only read
    // Of a status socket: the caller may ask what tenant (label, uid) has, and nothing else. None: the admin
    // socket.
    std::optional<std::string> status_label{};
    std::weak_ptr<const void> connection{};  // expired: nobody waits for the answer any more
};

// Requires: one call, at once or later. A second call does nothing, nor does one after the caller hung up.
using Answer = std::function<void(Result<std::string> json)>;

class Facade {
  public:
    // `command`: "status", "groups", "ops", "plan", "token_create", "token_list", "token_revoke",
    // "tune", "cluster_init", "cluster_join", "cluster_leave", "cluster_show", "doctor", "config".
    // `arguments`: a JSON object's text. invalid_argument names a bad argument, unsupported an unknown
    // command, permission a change that the caller may not make.
    virtual void ask(const Caller& caller, const std::string& command, const std::string& arguments,
                     Answer answer) = 0;

  protected:
    ~Facade() = default;
};

}  // namespace nexar::control
