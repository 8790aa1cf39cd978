// See socket.hpp.
#include "local/socket.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77  // Linux 6.5; Debian 12's headers are older
#endif

namespace nexar::local {

namespace {

Error io_error(const std::string& what) {
    return Error{errno == EACCES || errno == EPERM ? Errc::permission : Errc::io,
                 what + ": " + std::strerror(errno),
                 -1,
                 -1,
                 {}};
}

bool has_listener(const sockaddr_un& address) {
    Fd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    return ::connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ||
           errno == EAGAIN;
}

Result<void> remove_stale_socket(const std::string& path, const sockaddr_un& address) {
    const size_t slash = path.rfind('/');
    if (slash != std::string::npos && slash > 0) {
        const std::string folder = path.substr(0, slash);
        // Whatever the umask: access control is the socket's own.
        const bool made = ::mkdir(folder.c_str(), 0755) == 0;
        if (made ? ::chmod(folder.c_str(), 0755) != 0 : errno != EEXIST)
            return fail(io_error("cannot create the folder of " + path));
    }
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) return {};
    if (!S_ISSOCK(status.st_mode)) return fail(Errc::io, path + " exists and is not a socket");
    if (has_listener(address))
        return fail(Errc::bad_state, "another daemon listens on " + path +
                                         ": stop that one, or set another path (socket, session_sockets)");
    if (::unlink(path.c_str()) != 0) return fail(io_error("cannot remove the stale socket " + path));
    return {};
}

std::optional<uint32_t> number_in(const std::string& text) {
    uint32_t number = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), number);
    if (r.ec != std::errc{} || r.ptr != text.data() + text.size()) return {};
    return number;
}

Result<uid_t> user_number(const std::string& name) {
    if (const auto number = number_in(name)) return *number;
    std::vector<char> buffer(65536);
    passwd entry{};
    passwd* found = nullptr;
    if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
        return fail(Errc::bad_config, "there is no user '" + name + "'");
    return entry.pw_uid;
}

Result<gid_t> group_number(const std::string& name) {
    if (const auto number = number_in(name)) return *number;
    std::vector<char> buffer(65536);
    group entry{};
    group* found = nullptr;
    if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
        return fail(Errc::bad_config, "there is no group '" + name + "'");
    return entry.gr_gid;
}

// Only root, or CAP_CHOWN, may give a file to another user, or to a group that the daemon's user is not in.
Result<void> give(const std::string& path, const SocketAccess& access) {
    if (access.owner.empty() && access.group.empty()) return {};
    uid_t uid = static_cast<uid_t>(-1);
    gid_t gid = static_cast<gid_t>(-1);
    if (!access.owner.empty()) {
        NEXAR_TRY(uid, user_number(access.owner));
    }
    if (!access.group.empty()) {
        NEXAR_TRY(gid, group_number(access.group));
    }
    if (::chown(path.c_str(), uid, gid) == 0) return {};
    return fail(io_error("cannot give " + path + " to owner '" + access.owner + "', group '" + access.group +
                         "' (the daemon needs CAP_CHOWN, or to be a member of the group)"));
}

}  // namespace

// Connections that wait to be accepted [N3]: those of a user who is shut out still come [S16], so they are
// few; who finds them full tries again.
constexpr int backlog = 256;

Result<Fd> listen_on(const std::string& path, const SocketAccess& access) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return fail(Errc::bad_config, "the socket's path must have 1 to " +
                                          std::to_string(sizeof address.sun_path - 1) + " bytes: " + path);
    std::memcpy(address.sun_path, path.data(), path.size());
    NEXAR_TRY_VOID(remove_stale_socket(path, address));

    Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return fail(io_error("cannot create a unix socket"));
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
        return fail(io_error("cannot bind " + path));
    NEXAR_TRY_VOID(give(path, access));
    if (::chmod(path.c_str(), access.mode) != 0) return fail(io_error("cannot set the mode of " + path));
    if (::listen(fd.get(), backlog) != 0) return fail(io_error("cannot listen on " + path));
    return fd;
}

Result<PeerProcess> peer_of(int connection) {
    PeerProcess peer;
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
        return fail(io_error("cannot read the client's credentials"));
    peer.uid = credentials.uid;
    peer.gid = credentials.gid;
    peer.pid = static_cast<uint32_t>(credentials.pid);
    int pidfd = -1;
    size = sizeof pidfd;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) == 0) {
        peer.pidfd.reset(pidfd);
    } else if (credentials.pid > 0) {
        // Older kernels: by number. If the process has ended and its number is used again, the session ends
        // by the socket's end of file. pid 0: the process is in a pid namespace outside this one.
        peer.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, credentials.pid, 0)));
    }
    if (peer.pidfd) ::fcntl(peer.pidfd.get(), F_SETFD, FD_CLOEXEC);
    return peer;
}

uint32_t uid_of(int connection) {
    ucred credentials{};
    socklen_t size = sizeof credentials;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return UINT32_MAX;
    return credentials.uid;
}

Packet receive_packet(int connection) {
    Packet packet;
    loop::Received got = loop::receive(connection, packet.bytes);
    if (got.bytes < 0) {
        packet.kind =
            errno == EAGAIN || errno == EWOULDBLOCK ? Packet::Kind::nothing_yet : Packet::Kind::closed;
        return packet;
    }
    packet.size = static_cast<size_t>(got.bytes);
    packet.fds = std::move(got.descriptors);
    packet.out_of_descriptors = got.out_of_room;
    packet.kind = Packet::Kind::message;
    if (got.cut || packet.fds.size() > NEXAR_MSG_FDS_MAX) {
        packet.kind = Packet::Kind::bad;
        packet.problem = got.cut ? "message too long" : "too many descriptors";
    } else if (got.bytes == 0 && packet.fds.empty()) {
        // End of file. An empty packet looks the same; the protocol has none.
        packet.kind = Packet::Kind::closed;
    }
    return packet;
}

bool send_packet(int connection, Bytes bytes, std::span<const int> fds) {
    iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * NEXAR_MSG_FDS_MAX)] = {};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!fds.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(fds.size_bytes());
        cmsghdr* c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(fds.size_bytes());
        std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
    }
    return ::sendmsg(connection, &header, MSG_DONTWAIT | MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

}  // namespace nexar::local
