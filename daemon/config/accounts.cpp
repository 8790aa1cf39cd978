#include "config/accounts.hpp"

#include <grp.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <vector>

namespace nexar::config {

namespace {

constexpr size_t buffer_bytes = 65536;  // of one entry: a group's members are in it

bool is_number(const std::string& text) {
    return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

bool is_user(const std::string& name) {
    std::vector<char> buffer(buffer_bytes);
    passwd entry{};
    passwd* found = nullptr;
    return ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
}

bool is_group(const std::string& name) {
    std::vector<char> buffer(buffer_bytes);
    group entry{};
    group* found = nullptr;
    return ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr;
}

Result<void> check(const std::string& place, const char* kind, const char* database, const std::string& name,
                   bool (*is_known)(const std::string&)) {
    if (name.empty() || is_number(name) || is_known(name)) return {};
    return fail(Errc::bad_config,
                place + ": this host has no " + kind + " '" + name + "' (getent " + database + " " + name +
                    " finds none); allowed: the name or number of a " + kind + " of this host");
}

}  // namespace

Result<void> check_accounts(const Config& config) {
    if (!config.socket_group.empty() && !is_number(config.socket_group) && !is_group(config.socket_group))
        return fail(Errc::bad_config,
                    "socket_group: there is no group '" + config.socket_group +
                        "'; allowed: the name or number of a group of this host (groupadd --system " +
                        config.socket_group + " makes it)");
    for (const SessionSocket& s : config.session_sockets) {
        const std::string place = "session_sockets, " + s.path;
        NEXAR_TRY_VOID(check(place, "user", "passwd", s.owner, is_user));
        NEXAR_TRY_VOID(check(place, "group", "group", s.group, is_group));
    }
    return {};
}

}  // namespace nexar::config
