#include "control/admin_socket.hpp"

#include <grp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <vector>

namespace nexar::control {

namespace {

constexpr int backlog = 64;
constexpr size_t groups_max = 65536;  // NGROUPS_MAX of Linux

std::unexpected<Error> io_error(const std::string& what) {
    return fail(errno == EACCES || errno == EPERM ? Errc::permission : Errc::io,
                what + ": " + std::strerror(errno));
}

Result<sockaddr_un> address_of(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return fail(Errc::bad_config, "the admin socket's path must have 1 to " +
                                          std::to_string(sizeof address.sun_path - 1) + " bytes: '" + path +
                                          "'");
    std::memcpy(address.sun_path, path.data(), path.size());
    return address;
}

bool has_listener(const sockaddr_un& address) {
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool connected =
        ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
        errno == EAGAIN;  // its backlog is full
    ::close(probe);
    return connected;
}

Result<void> make_room(const std::string& path, const sockaddr_un& address) {
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos && slash > 0 && ::mkdir(path.substr(0, slash).c_str(), 0755) != 0 &&
        errno != EEXIST)
        return io_error("cannot create the folder of " + path);
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) return {};
    if (!S_ISSOCK(status.st_mode)) return fail(Errc::io, path + " exists and is not a socket");
    if (has_listener(address))
        return fail(Errc::bad_state,
                    "another daemon listens on " + path +
                        ": stop that one, or set another path (admin_socket, status_socket)");
    if (::unlink(path.c_str()) != 0) return io_error("cannot remove the stale socket " + path);
    return {};
}

Result<uint32_t> group_number(const std::string& name) {
    if (name.empty()) return ::getegid();
    uint32_t number = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), number);
    if (read.ec == std::errc{} && read.ptr == name.data() + name.size()) return number;
    std::vector<char> buffer(65536);
    group entry{};
    group* found = nullptr;
    const int error = ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
    if (error != 0 || found == nullptr)
        return fail(Errc::bad_config,
                    "socket_group: there is no group '" + name + "' (groupadd --system " + name + ")");
    return entry.gr_gid;
}

Result<void> bind_and_listen(int fd, const std::string& path, const sockaddr_un& address, unsigned mode,
                             const std::string& group, uint32_t gid) {
    // bind() gives the path the socket's mode: so no process can connect before chmod().
    if (::fchmod(fd, 0600) != 0) return io_error("cannot set the mode of a socket");
    if (::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return io_error("cannot bind " + path);
    if (!group.empty() && ::chown(path.c_str(), static_cast<uid_t>(-1), gid) != 0)
        return io_error("cannot give " + path + " to the group " + group +
                        "; the daemon's user must be a member of it");
    if (::chmod(path.c_str(), mode) != 0) return io_error("cannot set the mode of " + path);
    if (::listen(fd, backlog) != 0) return io_error("cannot listen on " + path);
    return {};
}

}  // namespace

Result<AdminSocket> listen_on(const std::string& path, unsigned mode, const std::string& group) {
    NEXAR_TRY(const sockaddr_un address, address_of(path));
    AdminSocket out;
    NEXAR_TRY(out.group, group_number(group));
    NEXAR_TRY_VOID(make_room(path, address));
    out.fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (out.fd < 0) return io_error("cannot create a unix socket");
    const auto bound = bind_and_listen(out.fd, path, address, mode, group, out.group);
    if (!bound) {
        ::close(out.fd);
        return fail(bound.error());
    }
    struct stat status{};
    if (::lstat(path.c_str(), &status) == 0) {
        out.device = status.st_dev;
        out.inode = status.st_ino;
    }
    return out;
}

void remove_socket(const std::string& path, const AdminSocket& socket) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) == 0 && status.st_dev == socket.device &&
        status.st_ino == socket.inode)
        ::unlink(path.c_str());
}

Result<Caller> caller_of(int connection, uint32_t group) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
        return io_error("cannot read the credentials of a connection");
    Caller caller{credentials.uid, credentials.gid, static_cast<uint32_t>(credentials.pid), false};
    caller.may_change = caller.uid == 0 || caller.uid == ::geteuid() || caller.gid == group;
    if (caller.may_change) return caller;

    std::vector<gid_t> groups(64);
    size = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    int got = ::getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
    if (got != 0 && errno == ERANGE &&
        size / sizeof(gid_t) <= groups_max) {  // `size` has the length that is needed
        groups.resize(size / sizeof(gid_t));
        got = ::getsockopt(connection, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &size);
    }
    if (got != 0) return caller;  // before Linux 4.13: the primary group only
    groups.resize(size / sizeof(gid_t));
    caller.may_change = std::find(groups.begin(), groups.end(), group) != groups.end();
    return caller;
}

}  // namespace nexar::control
