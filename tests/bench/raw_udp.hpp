// The UDP socket of raw_ngtcp2: up to 64 KiB of datagrams with one call in each direction (UDP_SEGMENT,
// UDP_GRO), on 127.0.0.1, to one peer. A failure ends the program with its name.
#pragma once

#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace raw {

inline constexpr uint64_t milliseconds = 1'000'000;  // in nanoseconds
inline constexpr size_t messages_per_receive = 4, message_bytes_max = 64u << 10;
inline constexpr int socket_bytes = 16 << 20;

inline void check(bool done, const char* what, const char* why = "") {
    if (done) return;
    std::fprintf(stderr, "raw_ngtcp2: %s %s\n", what, why);
    std::exit(EXIT_FAILURE);
}

inline uint64_t clock_now() {
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

class Udp {
  public:
    Udp() : fd_(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), room_(messages_per_receive) {
        local.sin_family = AF_INET;
        local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof local;
        auto* const name = reinterpret_cast<sockaddr*>(&local);
        check(fd_ >= 0 && bind(fd_, name, size) == 0 && getsockname(fd_, name, &size) == 0, "UDP socket");
        set(IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_PROBE);
        set(IPPROTO_IP, IP_RECVTOS, 1);
        set(SOL_UDP, UDP_GRO, 1);
        if (!set(SOL_SOCKET, SO_RCVBUFFORCE, socket_bytes)) set(SOL_SOCKET, SO_RCVBUF, socket_bytes);
        if (!set(SOL_SOCKET, SO_SNDBUFFORCE, socket_bytes)) set(SOL_SOCKET, SO_SNDBUF, socket_bytes);
    }
    ~Udp() { close(fd_); }
    Udp(const Udp&) = delete;

    // False: the socket is full. A datagram that is too big for the path (a probe) is lost.
    bool send(const uint8_t* data, size_t bytes, size_t segment, uint8_t ecn) {
        iovec vector{const_cast<uint8_t*>(data), bytes};
        alignas(cmsghdr) char control[128] = {};
        msghdr message{&remote, sizeof remote, &vector, 1, control, 0, 0};
        if (bytes > segment) add(message, SOL_UDP, UDP_SEGMENT, static_cast<uint16_t>(segment));
        if (ecn != 0) add(message, IPPROTO_IP, IP_TOS, static_cast<int>(ecn));
        ++sends;
        if (sendmsg(fd_, &message, MSG_NOSIGNAL) >= 0) return true;
        if (errno == EAGAIN || errno == ENOBUFS) return false;
        check(errno == EMSGSIZE, "sendmsg", std::strerror(errno));
        return true;
    }
    // Calls take(datagram, bytes, ecn) for each. True: more may be waiting.
    template <class Take>
    bool receive(const Take& take) {
        std::array<mmsghdr, messages_per_receive> messages{};
        std::array<iovec, messages_per_receive> vectors;
        for (size_t i = 0; i < messages_per_receive; ++i) {
            vectors[i] = {room_[i].data, message_bytes_max};
            messages[i].msg_hdr = {&remote, sizeof remote, &vectors[i], 1, room_[i].control, 128, 0};
        }
        const int n = recvmmsg(fd_, messages.data(), messages_per_receive, MSG_DONTWAIT, nullptr);
        check(n >= 0 || errno == EAGAIN, "recvmmsg", std::strerror(errno));
        receives += n > 0;
        for (int i = 0; i < n; ++i) split(messages[static_cast<size_t>(i)], take);
        return n == static_cast<int>(messages_per_receive);
    }
    void wait(bool writable, uint64_t until) const {
        const uint64_t now = clock_now(), most = 1000 * milliseconds;
        const auto nanoseconds = static_cast<long>(until > now ? std::min(until - now, most) : 0);
        const timespec t{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
        pollfd p{fd_, static_cast<short>(POLLIN | (writable ? POLLOUT : 0)), 0};
        ppoll(&p, 1, &t, nullptr);
    }

    sockaddr_in local{}, remote{};
    uint64_t sends = 0, receives = 0;

  private:
    struct Room {
        uint8_t data[message_bytes_max];
        alignas(cmsghdr) char control[128];
    };
    bool set(int level, int name, int value) {
        return setsockopt(fd_, level, name, &value, sizeof value) == 0;
    }
    template <class T>
    static void add(msghdr& message, int level, int type, const T& value) {
        auto* const header =
            reinterpret_cast<cmsghdr*>(static_cast<char*>(message.msg_control) + message.msg_controllen);
        header->cmsg_level = level;
        header->cmsg_type = type;
        header->cmsg_len = CMSG_LEN(sizeof value);
        std::memcpy(CMSG_DATA(header), &value, sizeof value);
        message.msg_controllen += CMSG_SPACE(sizeof value);
    }
    template <class Take>
    void split(mmsghdr& message, const Take& take) {
        size_t segment = message.msg_len;
        uint8_t ecn = 0;
        for (cmsghdr* h = CMSG_FIRSTHDR(&message.msg_hdr); h; h = CMSG_NXTHDR(&message.msg_hdr, h)) {
            if (h->cmsg_level == IPPROTO_IP && h->cmsg_type == IP_TOS) ecn = *CMSG_DATA(h) & 3;
            if (h->cmsg_level != SOL_UDP || h->cmsg_type != UDP_GRO) continue;
            int value;
            std::memcpy(&value, CMSG_DATA(h), sizeof value);
            segment = static_cast<size_t>(value);
        }
        const auto* const data = static_cast<const uint8_t*>(message.msg_hdr.msg_iov->iov_base);
        for (size_t at = 0; at < message.msg_len; at += segment)
            take(data + at, std::min<size_t>(segment, message.msg_len - at), ecn);
    }

    int fd_;
    std::vector<Room> room_;
};

}  // namespace raw
