// See tcp_socket.hpp.
#include "transport/tcp_socket.hpp"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <system_error>
#include <utility>

namespace nexar::transport {
namespace {

std::string text_of(int error) {
    return std::system_category().message(error);
}

Result<int> open_socket(uint8_t family) {
    const int fd = ::socket(family == 4 ? AF_INET : AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return fail(Errc::io, "socket: " + text_of(errno));
    return fd;
}

void set(int fd, int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
}

// In words that nexarctl status shows before "at ADDRESS".
std::string dial_error(int error) {
    if (error == ECONNREFUSED || error == ECONNRESET) return "tcp refused";
    if (error == EHOSTUNREACH || error == ENETUNREACH) return "tcp unreachable";
    if (error == ETIMEDOUT) return "tcp not answered";
    return "tcp: " + text_of(error);
}

}  // namespace

TcpSocket::TcpSocket(int fd) : fd_(fd) {
    set(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
    set(fd_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, unsent_limit_);
}

TcpSocket::~TcpSocket() {
    if (fd_ >= 0) ::close(fd_);
}

Result<TcpSocket> TcpSocket::connect(const quic::Address& from, const quic::Address& to) {
    NEXAR_TRY(const int fd, open_socket(to.family));
    TcpSocket out(fd);
    if (from.family == to.family && !from.is_any_host()) {
        quic::Address source = from;
        source.port = 0;
        const quic::SocketAddress local(source);
        if (::bind(fd, &local.base, local.size) != 0)
            return fail(Errc::io, "tcp from " + source.text() + ": " + text_of(errno));
    }
    const quic::SocketAddress remote(to);
    if (::connect(fd, &remote.base, remote.size) != 0 && errno != EINPROGRESS)
        return fail(Errc::io, dial_error(errno));
    return out;
}

std::optional<std::string> TcpSocket::connect_error() const {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    if (error == 0) return std::nullopt;
    return dial_error(error);
}

tcp::ByteWire::Moved TcpSocket::receive(MutableBytes into) {
    return received(::recv(fd_, into.data(), into.size(), 0));
}

tcp::ByteWire::Moved TcpSocket::receive_two(MutableBytes first, MutableBytes second) {
    const std::array<iovec, 2> parts = {{{first.data(), first.size()}, {second.data(), second.size()}}};
    return received(::readv(fd_, parts.data(), parts.size()));
}

tcp::ByteWire::Moved TcpSocket::received(ssize_t bytes) {
    if (bytes > 0) return {static_cast<size_t>(bytes), State::moved};
    if (bytes == 0) return {0, State::ended};
    if (errno == EAGAIN || errno == EINTR) return {0, State::blocked};
    error_ = errno;
    return {0, State::broken};
}

tcp::ByteWire::Moved TcpSocket::send(Bytes bytes) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    short_ = n < 0 && (errno == ENOBUFS || errno == ENOMEM);
    if (n > 0) return {static_cast<size_t>(n), State::moved};
    if (n == 0 || errno == EAGAIN || errno == EINTR || short_) return {0, State::blocked};
    error_ = errno;
    return {0, State::broken};
}

std::string TcpSocket::why() const {
    return error_ == 0 ? "the connection broke" : text_of(error_);
}

TcpSocket::Peeked TcpSocket::peek() const {
    std::byte first{};
    const ssize_t n = ::recv(fd_, &first, 1, MSG_PEEK);
    if (n == 1) return {State::moved, first};
    return {n < 0 && (errno == EAGAIN || errno == EINTR) ? State::blocked : State::ended, {}};
}

std::optional<size_t> TcpSocket::discard(size_t most) {
    std::array<std::byte, 4096> bin;
    size_t discarded = 0;
    while (discarded < most) {
        const ssize_t n = ::recv(fd_, bin.data(), bin.size(), 0);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) return std::nullopt;
        discarded += static_cast<size_t>(n);
    }
    return discarded;
}

void TcpSocket::end_sending() {
    ::shutdown(fd_, SHUT_WR);
}

// A kernel that does not know the rate leaves it 0.
uint64_t TcpSocket::limit_unsent() {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
        return static_cast<uint64_t>(unsent_limit_);
    const int limit = static_cast<int>(tcp::unsent_limit(info.tcpi_delivery_rate));
    if (limit != std::exchange(unsent_limit_, limit)) set(fd_, IPPROTO_TCP, TCP_NOTSENT_LOWAT, limit);
    return static_cast<uint64_t>(limit);
}

Duration TcpSocket::rtt() const {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(fd_, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    return std::chrono::microseconds(info.tcpi_rtt);
}

Result<std::unique_ptr<TcpListener>> TcpListener::open(const quic::Address& local) {
    NEXAR_TRY(const int fd, open_socket(local.family));
    std::unique_ptr<TcpListener> out(new TcpListener(fd));
    set(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (local.family == 6) set(fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    const quic::SocketAddress address(local);
    if (::bind(fd, &address.base, address.size) != 0 || ::listen(fd, SOMAXCONN) != 0)
        return fail(Errc::io, "TCP " + local.text() + ": " + text_of(errno) +
                                  " (without TCP for bulk data: tcp_bulk = false)");
    return out;
}

TcpListener::~TcpListener() {
    ::close(fd_);
}

std::optional<TcpListener::Accepted> TcpListener::accept() {
    quic::SocketAddress from;
    socklen_t size = sizeof from.v6;
    const int fd = ::accept4(fd_, &from.base, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    short_ = fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM);
    if (fd < 0) return std::nullopt;
    return Accepted{TcpSocket(fd), quic::Address::from_sockaddr(&from.base)};
}

bool TcpListener::has_waiting() const {
    pollfd listener{fd_, POLLIN, 0};
    return ::poll(&listener, 1, 0) > 0;
}

}  // namespace nexar::transport
