// See sd_notify.hpp.
#include "node/sd_notify.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace nexar::node {

namespace {

constexpr uint64_t watchdog_usec_max = uint64_t{86400} * 1'000'000;

std::optional<uint64_t> number(const std::string& text) {
    uint64_t value = 0;
    const auto end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (text.empty() || read.ec != std::errc{} || read.ptr != end) return std::nullopt;
    return value;
}

// A newline in a value would begin another field.
std::string one_line(std::string text) {
    for (char& c : text)
        if (c == '\n' || c == '\r' || c == '\0') c = ' ';
    return text;
}

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

SystemdNotifier::SystemdNotifier() : socket_(variable("NOTIFY_SOCKET")) {
    set_up(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
    for (const char* name : {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}) ::unsetenv(name);
}

SystemdNotifier::SystemdNotifier(const std::string& notify_socket, const std::string& watchdog_usec,
                                 const std::string& watchdog_pid)
    : socket_(notify_socket) {
    set_up(watchdog_usec, watchdog_pid);
}

SystemdNotifier::~SystemdNotifier() {
    if (fd_ >= 0) ::close(fd_);
}

void SystemdNotifier::set_up(const std::string& watchdog_usec, const std::string& watchdog_pid) {
    if (socket_.empty()) return;
    const bool known = socket_[0] == '/' || (socket_[0] == '@' && socket_.size() > 1);
    if (!known || socket_.size() >= sizeof(sockaddr_un{}.sun_path)) {
        problem_ = "NOTIFY_SOCKET is neither a path nor an abstract name of up to 107 bytes";
        return;
    }
    fd_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd_ < 0) problem_ = std::string("no socket for NOTIFY_SOCKET: ") + std::strerror(errno);
    const auto usec = number(watchdog_usec);
    const auto pid = number(watchdog_pid);
    if (!usec || *usec == 0 || *usec > watchdog_usec_max) return;
    if (!watchdog_pid.empty() && pid != static_cast<uint64_t>(::getpid())) return;
    interval_ = std::chrono::microseconds(*usec);
}

bool SystemdNotifier::ready() {
    return send("READY=1");
}
bool SystemdNotifier::stopping() {
    return send("STOPPING=1");
}
bool SystemdNotifier::status(const std::string& text) {
    return send("STATUS=" + one_line(text));
}
bool SystemdNotifier::watchdog() {
    return send("WATCHDOG=1");
}

bool SystemdNotifier::send(const std::string& text) {
    if (fd_ < 0) return socket_.empty();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, socket_.data(), socket_.size());
    if (socket_[0] == '@') address.sun_path[0] = '\0';
    // The length ends an abstract name; a path's final zero may be counted or not.
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
    ssize_t sent;
    do {
        sent = ::sendto(fd_, text.data(), text.size(), MSG_NOSIGNAL,
                        reinterpret_cast<const sockaddr*>(&address), size);
    } while (sent < 0 && errno == EINTR);
    if (sent < 0) problem_ = "cannot notify systemd: " + socket_ + ": " + std::strerror(errno);
    return sent >= 0;
}

}  // namespace nexar::node
