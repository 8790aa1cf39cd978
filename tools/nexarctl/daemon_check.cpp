#include "nexarctl/daemon_check.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "config/config.hpp"
#include "nexarctl/descriptor.hpp"

namespace nexarctl {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int look_again_ms = 50;

Reply refused(const std::string& path) {
    const std::string nothing = "; nothing was started";
    switch (errno) {
        case ENOENT:
        case ENOTDIR:
        case ECONNREFUSED:
            return {exit_no_daemon,
                    "no daemon takes sessions on " + path + nothing +
                        ". Start it: systemctl start nexard (without systemd: nexard); or name the socket of "
                        "another daemon in NEXAR_SOCKET",
                    "NO_DAEMON"};
        case EACCES:
        case EPERM:
            return {exit_failed,
                    "you may not use " + path + nothing + ". ls -l " + path +
                        " shows who may, also of its directory",
                    "PERMISSION"};
        case EPROTOTYPE:
            return {
                exit_failed,
                path + " is not a session socket" + nothing +
                    ". Is it the admin socket? NEXAR_SOCKET is to name the one that nexard's configuration "
                    "has as socket",
                "INVALID_ARGUMENT"};
        default:
            return {exit_failed, "cannot connect to " + path + ": " + std::strerror(errno) + nothing, "IO"};
    }
}

}  // namespace

std::string session_socket() {
    const char* const set = std::getenv("NEXAR_SOCKET");
    return set != nullptr && *set != 0 ? set : nexar::config::Config().socket;
}

Reply check_session_socket(const std::string& path, int timeout_ms) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof address.sun_path)
        return {exit_usage, "NEXAR_SOCKET: a socket's path has 1 to 107 bytes: " + path, "INVALID_ARGUMENT"};
    std::memcpy(address.sun_path, path.data(), path.size());
    const Descriptor probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
    while (::connect(probe.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        if (errno != EAGAIN && errno != EINTR) return refused(path);
        // The daemon's queue of connections is full; poll(2) cannot wait for room in it.
        if (Clock::now() >= deadline)
            return {exit_no_answer,
                    "the daemon on " + path +
                        " accepts no sessions: it is stopped or stuck; nothing was started. systemctl status "
                        "nexard",
                    "NO_ANSWER"};
        ::poll(nullptr, 0, look_again_ms);
    }
    return {};
}

}  // namespace nexarctl
