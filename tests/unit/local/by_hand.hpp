// A client's half of the handshake, message by message (proto/local_protocol.h), for tests that stop in its
// middle or say something else.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "local/socket.hpp"
#include "local_protocol.h"
#include "loop/fd.hpp"

namespace nexar::test {

inline local::Fd session_socket() {
    return local::Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
}

inline bool connect_to(const local::Fd& fd, const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.data(), path.size());
    return ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

inline local::Fd dial(const std::string& path) {
    local::Fd fd = session_socket();
    REQUIRE(connect_to(fd, path));
    return fd;
}

template <class T>
T message(uint32_t type) {
    T out{};
    out.head = {NEXAR_LOCAL_MAGIC, type};
    return out;
}

template <class T>
bool say(const local::Fd& fd, const T& body, std::vector<int> descriptors = {}) {
    return local::send_packet(fd.get(), std::as_bytes(std::span<const T>(&body, 1)), descriptors);
}

// When the daemon closes without reading what came, the kernel reports that once, before what was sent.
inline ssize_t receive_any(const local::Fd& fd, std::span<char> into, int flags) {
    const ssize_t got = ::recv(fd.get(), into.data(), into.size(), flags);
    if (got >= 0 || errno != ECONNRESET) return got;
    return ::recv(fd.get(), into.data(), into.size(), flags);
}

// The next packet's type; 0 at the end of file. Waits up to a minute.
inline uint32_t receive_type(const local::Fd& fd) {
    const timeval limit{60, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    char bytes[NEXAR_MSG_BYTES_MAX] = {};
    const ssize_t got = receive_any(fd, bytes, 0);
    nexar_msg_head head{};
    if (got >= static_cast<ssize_t>(sizeof head)) std::memcpy(&head, bytes, sizeof head);
    return got > 0 ? head.type : got == 0 || errno == ECONNRESET ? 0 : 999;
}

// The type of a packet that is there; 999: none is.
inline uint32_t receive_type_now(const local::Fd& fd) {
    char bytes[NEXAR_MSG_BYTES_MAX] = {};
    const ssize_t got = receive_any(fd, bytes, MSG_DONTWAIT);
    nexar_msg_head head{};
    if (got >= static_cast<ssize_t>(sizeof head)) std::memcpy(&head, bytes, sizeof head);
    return got > 0 ? head.type : 999;
}

inline nexar_msg_hello hello() {
    auto out = message<nexar_msg_hello>(NEXAR_MSG_HELLO);
    out.version_min = out.version_max = NEXAR_LOCAL_VERSION;
    return out;
}

// Has all its pages, as everything that a client passes [S18].
inline local::Fd memfd(uint64_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
    local::Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::fallocate(fd.get(), 0, 0, static_cast<off_t>(bytes)) == 0);
    for (uint64_t at = 0; at < bytes; at += uint64_t{2} << 20)  // [S19]
        REQUIRE(::pwrite(fd.get(), "", 1, static_cast<off_t>(at)) == 1);
    if (seals) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    return fd;
}

inline nexar_msg_attach attach(uint32_t slots) {
    auto out = message<nexar_msg_attach>(NEXAR_MSG_ATTACH);
    out.slots = slots;
    out.control_bytes = nexar_shm_control_bytes(slots);
    return out;
}

}  // namespace nexar::test
