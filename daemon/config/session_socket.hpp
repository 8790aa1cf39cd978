// Further session sockets, each with a label that is a part of its users' tenant (docs/protocol/tenants.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nexar::config {

struct SessionSocket {
    std::string path;   // absolute
    std::string label;  // of the tenants that come through it
    std::string owner;  // user's name or number; empty: the daemon's user
    std::string group;  // group's name or number; empty: the daemon's group
    unsigned mode = 0666;
    std::string status{};  // path of the socket that shows its users what they have; empty: none
    bool operator==(const SessionSocket&) const = default;
};

constexpr const char* session_sockets_allowed =
    "texts like \"/run/nexar/a/nexard.sock label=a owner=1000 group=hpc mode=0660\": an absolute path of up "
    "to 107 characters without spaces and commas, and a label of 1 to 64 letters, digits and '._-'; owner, "
    "group, "
    "mode (0600 to 0777) and status (an absolute path, too) need not be there; each path once";

// Separated by commas. None: a text that is not allowed.
std::optional<std::vector<SessionSocket>> session_sockets_from(std::string_view text);
std::string text_of(const std::vector<SessionSocket>& sockets);

}  // namespace nexar::config
