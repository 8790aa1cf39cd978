#include "loop/receive.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace nexar::loop {

namespace {

constexpr size_t descriptors_max = 253;  // of one message: SCM_MAX_FD of the kernel

void take_descriptors(msghdr& header, std::vector<Fd>& out) {
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            int fd;
            std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            out.emplace_back(fd);
        }
    }
}

}  // namespace

Received receive(int connection, MutableBytes into) {
    Received out;
    iovec part{into.data(), into.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * descriptors_max)];
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    do out.bytes = ::recvmsg(connection, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (out.bytes < 0 && errno == EINTR);
    if (out.bytes < 0) return out;
    take_descriptors(header, out.descriptors);
    out.cut = (header.msg_flags & MSG_TRUNC) != 0;
    out.out_of_room = (header.msg_flags & MSG_CTRUNC) != 0;
    return out;
}

bool brings_descriptors(int connection) {
    std::byte byte;
    iovec part{&byte, 1};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    const ssize_t got = ::recvmsg(connection, &header, MSG_DONTWAIT | MSG_PEEK);
    return got >= 0 && (header.msg_flags & MSG_CTRUNC) != 0;
}

}  // namespace nexar::loop
