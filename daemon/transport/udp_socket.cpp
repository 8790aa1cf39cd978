// See udp_socket.hpp.
#include "transport/udp_socket.hpp"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "core/check.hpp"

namespace nexar::transport {

namespace {

constexpr size_t control_bytes = 256;
// An error in the queue fails the next call, which drains it. If one did not, the socket would stay readable:
// so one of so many calls that find no datagram drains, too.
constexpr unsigned receives_per_drain = 64;
// A device without checksum offload refuses every batch; other devices refuse single batches for their size.
constexpr unsigned refusals_until_off = 8;

Result<> set_option(int fd, int level, int name, int value, const char* what) {
    if (setsockopt(fd, level, name, &value, sizeof value) == 0) return {};
    return fail(Errc::io, std::string("UDP socket: ") + what + ": " + std::strerror(errno));
}

int get_option(int fd, int level, int name) {
    int value = 0;
    socklen_t size = sizeof value;
    getsockopt(fd, level, name, &value, &size);
    return value;
}

// Appends control messages to a msghdr.
class Control {
  public:
    explicit Control(msghdr& message) : message_(&message) {
        message.msg_control = bytes_;
        message.msg_controllen = 0;
    }
    template <class T>
    void add(int level, int type, const T& value) {
        auto* header = reinterpret_cast<cmsghdr*>(bytes_ + message_->msg_controllen);
        header->cmsg_level = level;
        header->cmsg_type = type;
        header->cmsg_len = CMSG_LEN(sizeof(T));
        std::memcpy(CMSG_DATA(header), &value, sizeof value);
        message_->msg_controllen += CMSG_SPACE(sizeof(T));
    }

  private:
    msghdr* message_;
    alignas(cmsghdr) char bytes_[control_bytes] = {};
};

template <class T>
T value_of(const cmsghdr* header) {
    T value;
    std::memcpy(&value, CMSG_DATA(header), sizeof value);
    return value;
}

}  // namespace

struct UdpSocket::Buffers {
    std::array<std::vector<std::byte>, messages_per_receive> data;
    std::array<iovec, messages_per_receive> vectors;
    std::array<mmsghdr, messages_per_receive> messages;
    std::array<sockaddr_in6, messages_per_receive> names;
    struct alignas(cmsghdr) ControlBytes {
        char bytes[control_bytes];
    };
    std::array<ControlBytes, messages_per_receive> controls;
};

UdpSocket::UdpSocket() : buffers_(std::make_unique<Buffers>()) {
    for (auto& one : buffers_->data) one.resize(message_bytes_max);
}

UdpSocket::~UdpSocket() {
    if (fd_ >= 0) close(fd_);
}

namespace {

std::string remedy_of_bind(int error, const quic::Address& local) {
    const std::string port = std::to_string(local.port);
    if (error == EADDRINUSE)
        return "; another process has the port (ss -ulpn 'sport = :" + port +
               "' shows it): end it, or set listen to another port. Bulk data has the ports after that one";
    if (error == EADDRNOTAVAIL)
        return "; this host does not have the address: set listen to one that it has (ip addr), or to "
               "0.0.0.0:" +
               port;
    return error == EACCES ? "; ports below 1024 need CAP_NET_BIND_SERVICE: set listen to another one" : "";
}

}  // namespace

Result<std::unique_ptr<UdpSocket>> UdpSocket::open(const quic::Address& local, const Options& options) {
    if (local.family != 4 && local.family != 6)
        return fail(Errc::invalid_argument, "UDP socket: the address to listen on must be IPv4 or IPv6");
    std::unique_ptr<UdpSocket> out(new UdpSocket);
    out->fd_ = socket(local.family == 4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (out->fd_ < 0) return fail(Errc::io, std::string("UDP socket: ") + std::strerror(errno));
    out->local_ = local;
    NEXAR_TRY_VOID(out->configure(options));
    const quic::SocketAddress address(local);
    if (bind(out->fd_, &address.base, address.size) != 0)
        return fail(Errc::io, "UDP socket: cannot listen on " + local.text() + ": " + std::strerror(errno) +
                                  remedy_of_bind(errno, local));
    sockaddr_in6 bound;
    socklen_t size = sizeof bound;
    if (getsockname(out->fd_, reinterpret_cast<sockaddr*>(&bound), &size) == 0)
        out->local_ = quic::Address::from_sockaddr(reinterpret_cast<sockaddr*>(&bound));
    return out;
}

Result<> UdpSocket::configure(const Options& options) {
    const bool v4 = local_.family == 4;
    if (!v4) NEXAR_TRY_VOID(set_option(fd_, IPPROTO_IPV6, IPV6_V6ONLY, 1, "IPV6_V6ONLY"));
    // PROBE: never fragment, and ignore ICMP "fragmentation needed", which can be forged: QUIC probes the
    // path itself.
    NEXAR_TRY_VOID(
        v4 ? set_option(fd_, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE, "IP_MTU_DISCOVER")
           : set_option(fd_, IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_PROBE, "IPV6_MTU_DISCOVER"));
    NEXAR_TRY_VOID(v4 ? set_option(fd_, IPPROTO_IP, IP_PKTINFO, 1, "IP_PKTINFO")
                      : set_option(fd_, IPPROTO_IPV6, IPV6_RECVPKTINFO, 1, "IPV6_RECVPKTINFO"));
    NEXAR_TRY_VOID(v4 ? set_option(fd_, IPPROTO_IP, IP_RECVTOS, 1, "IP_RECVTOS")
                      : set_option(fd_, IPPROTO_IPV6, IPV6_RECVTCLASS, 1, "IPV6_RECVTCLASS"));
    NEXAR_TRY_VOID(v4 ? set_option(fd_, IPPROTO_IP, IP_RECVERR, 1, "IP_RECVERR")
                      : set_option(fd_, IPPROTO_IPV6, IPV6_RECVERR, 1, "IPV6_RECVERR"));
    set_buffer(SO_RCVBUFFORCE, SO_RCVBUF, options.buffer_bytes);
    set_buffer(SO_SNDBUFFORCE, SO_SNDBUF, options.buffer_bytes);
    stats_.receive_buffer = static_cast<size_t>(get_option(fd_, SOL_SOCKET, SO_RCVBUF));
    stats_.send_buffer = static_cast<size_t>(get_option(fd_, SOL_SOCKET, SO_SNDBUF));
    const int on = 1;
    stats_.coalescing = options.coalescing && setsockopt(fd_, SOL_UDP, UDP_GRO, &on, sizeof on) == 0;
    stats_.segmentation = options.segmentation;
    return {};
}

void UdpSocket::set_buffer(int force, int plain, size_t bytes) {
    const int value = static_cast<int>(bytes);
    if (setsockopt(fd_, SOL_SOCKET, force, &value, sizeof value) != 0)
        setsockopt(fd_, SOL_SOCKET, plain, &value, sizeof value);  // the kernel grants what rmem_max allows
}

// ---- Sending.

// One sendmsg(); returns 0 or errno. An error that an earlier datagram caused (IP_RECVERR) is drained, and
// the call is repeated.
int UdpSocket::send_some(const quic::SendBatch& batch, Bytes bytes) {
    const quic::SocketAddress remote(batch.remote);
    iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr message{};
    message.msg_name = const_cast<sockaddr*>(&remote.base);
    message.msg_namelen = remote.size;
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    Control control(message);
    if (bytes.size() > batch.segment) control.add(SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(batch.segment));
    const bool v4 = local_.family == 4;
    if (batch.ecn != 0) {
        if (v4)
            control.add(IPPROTO_IP, IP_TOS, static_cast<int>(batch.ecn));
        else
            control.add(IPPROTO_IPV6, IPV6_TCLASS, static_cast<int>(batch.ecn));
    }
    // A wildcard socket must choose the source: the address that the peer sent to.
    if (local_.is_any_host() && !batch.local.is_any_host()) {
        const quic::SocketAddress from(batch.local);
        if (v4)
            control.add(IPPROTO_IP, IP_PKTINFO, in_pktinfo{0, from.v4.sin_addr, {}});
        else
            control.add(IPPROTO_IPV6, IPV6_PKTINFO, in6_pktinfo{from.v6.sin6_addr, from.v6.sin6_scope_id});
    }
    if (message.msg_controllen == 0) message.msg_control = nullptr;
    int error = 0;
    for (int attempt = 0; attempt < 3; ++attempt) {
        if (sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
            ++stats_.sends;
            stats_.datagrams_sent += (bytes.size() + batch.segment - 1) / batch.segment;
            stats_.bytes_sent += bytes.size();
            return 0;
        }
        error = errno;
        if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS) break;
        drain_errors();
        if (error != ECONNREFUSED && error != EHOSTUNREACH && error != ENETUNREACH && error != EINTR) break;
    }
    return error;
}

size_t UdpSocket::send(const quic::SendBatch& batch, Bytes bytes) {
    size_t done = 0;
    while (done < bytes.size()) {
        const Bytes left = bytes.subspan(done);
        const bool together = stats_.segmentation && left.size() > batch.segment;
        const Bytes now = together ? left : left.first(std::min(batch.segment, left.size()));
        const int error = send_some(batch, now);
        if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS) return done;
        if (error != 0 && together &&
            (error == EINVAL || error == EIO || error == EMSGSIZE || error == EOPNOTSUPP)) {
            ++stats_.segmentation_refused;
            const bool always =
                error == EIO || error == EOPNOTSUPP || ++refused_in_a_row_ >= refusals_until_off;
            if (always) stats_.segmentation = false;
            // Send this batch datagram by datagram, so that only a datagram that is too big is dropped.
            for (Bytes rest = now; !rest.empty();) {
                const Bytes one = rest.first(std::min(batch.segment, rest.size()));
                const int again = send_some(batch, one);
                if (again == EAGAIN || again == EWOULDBLOCK || again == ENOBUFS) return done;
                if (again != 0) ++(again == EMSGSIZE ? stats_.too_big : stats_.send_errors);
                rest = rest.subspan(one.size());
                done += one.size();
            }
            continue;
        }
        if (error == EMSGSIZE)
            ++stats_.too_big;
        else if (error != 0)
            ++stats_.send_errors;
        else if (together)
            refused_in_a_row_ = 0;
        done += now.size();
    }
    return done;
}

// ---- Receiving.

UdpSocket::Received UdpSocket::parse(msghdr& message, Bytes bytes) const {
    Received out;
    out.bytes = bytes;
    out.remote = quic::Address::from_sockaddr(static_cast<const sockaddr*>(message.msg_name));
    out.local = local_;
    for (cmsghdr* h = CMSG_FIRSTHDR(&message); h; h = CMSG_NXTHDR(&message, h)) {
        if (h->cmsg_level == SOL_UDP && h->cmsg_type == UDP_GRO) {
            out.segment = static_cast<size_t>(value_of<int>(h));
        } else if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_TOS) {
            out.ecn = value_of<uint8_t>(h) & 3;
        } else if (h->cmsg_level == IPPROTO_IPV6 && h->cmsg_type == IPV6_TCLASS) {
            out.ecn = static_cast<uint8_t>(value_of<int>(h) & 3);
        } else if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_PKTINFO) {
            const auto info = value_of<in_pktinfo>(h);
            std::memcpy(out.local.host.data(), &info.ipi_addr, 4);
        } else if (h->cmsg_level == IPPROTO_IPV6 && h->cmsg_type == IPV6_PKTINFO) {
            const auto info = value_of<in6_pktinfo>(h);
            std::memcpy(out.local.host.data(), &info.ipi6_addr, 16);
            if (out.remote.scope != 0) out.local.scope = info.ipi6_ifindex;
        }
    }
    return out;
}

size_t UdpSocket::receive(std::array<Received, messages_per_receive>& out) {
    Buffers& b = *buffers_;
    for (size_t i = 0; i < messages_per_receive; ++i) {
        b.vectors[i] = {b.data[i].data(), b.data[i].size()};
        b.messages[i] = {};
        msghdr& m = b.messages[i].msg_hdr;
        m.msg_name = &b.names[i];
        m.msg_namelen = sizeof b.names[i];
        m.msg_iov = &b.vectors[i];
        m.msg_iovlen = 1;
        m.msg_control = b.controls[i].bytes;
        m.msg_controllen = control_bytes;
    }
    // A pending ICMP error makes the call fail once although datagrams may be waiting.
    int n = -1;
    bool empty = false;
    for (int attempt = 0; attempt < 3 && n < 0 && !empty; ++attempt) {
        n = recvmmsg(fd_, b.messages.data(), messages_per_receive, MSG_DONTWAIT, nullptr);
        empty = n < 0 && errno == EAGAIN && ++empty_receives_ % receives_per_drain != 0;
        if (n < 0 && !empty) drain_errors();
    }
    if (n <= 0) return 0;
    size_t count = 0;
    ++stats_.receives;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
        msghdr& m = b.messages[i].msg_hdr;
        if ((m.msg_flags & MSG_TRUNC) || b.messages[i].msg_len == 0) continue;
        out[count] = parse(m, Bytes(b.data[i]).first(b.messages[i].msg_len));
        const Received& r = out[count++];
        stats_.bytes_received += r.bytes.size();
        stats_.datagrams_received += r.segment ? (r.bytes.size() + r.segment - 1) / r.segment : 1;
    }
    return count;
}

// A non-empty error queue keeps the descriptor readable, so its poller would spin.
void UdpSocket::drain_errors() {
    for (int i = 0; i < 64; ++i) {
        sockaddr_in6 about{};
        alignas(cmsghdr) char control[512];
        std::byte payload[1];
        iovec vector{payload, sizeof payload};
        msghdr m{};
        m.msg_name = &about;
        m.msg_namelen = sizeof about;
        m.msg_iov = &vector;
        m.msg_iovlen = 1;
        m.msg_control = control;
        m.msg_controllen = sizeof control;
        if (recvmsg(fd_, &m, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
        for (cmsghdr* h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
            const bool error = (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_RECVERR) ||
                               (h->cmsg_level == IPPROTO_IPV6 && h->cmsg_type == IPV6_RECVERR);
            if (!error) continue;
            const auto e = value_of<sock_extended_err>(h);
            const bool icmp = e.ee_origin == SO_EE_ORIGIN_ICMP || e.ee_origin == SO_EE_ORIGIN_ICMP6;
            if (!icmp || e.ee_errno == EMSGSIZE) continue;
            ++stats_.unreachable;
            const auto peer = quic::Address::from_sockaddr(reinterpret_cast<const sockaddr*>(&about));
            if (unreachable_.size() < unreachable_kept_max && !std::ranges::count(unreachable_, peer))
                unreachable_.push_back(peer);
        }
    }
}

std::optional<quic::Address> UdpSocket::poll_unreachable() {
    if (unreachable_.empty()) return std::nullopt;
    const quic::Address peer = unreachable_.front();
    unreachable_.pop_front();
    return peer;
}

}  // namespace nexar::transport
