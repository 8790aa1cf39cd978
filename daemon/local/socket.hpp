// The local socket's system calls: listening, packets with descriptors, the peer's credentials. Every call on
// a connection passes MSG_DONTWAIT: the client shares the open file description and could clear O_NONBLOCK
// [S11].
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "local_protocol.h"
#include "loop/receive.hpp"

namespace nexar::local {

using loop::Fd;

struct SocketAccess {
    unsigned mode = 0666;
    std::string owner, group;  // names or numbers; empty: the daemon's
};

// Creates the folder (one level, 0755) and replaces a stale socket, but not one that has a listener.
Result<Fd> listen_on(const std::string& path, const SocketAccess& access);

struct PeerProcess {
    uint32_t uid = 0, gid = 0, pid = 0;
    Fd pidfd;  // readable when the process has ended; empty where the kernel has none
};
Result<PeerProcess> peer_of(int connection);
uint32_t uid_of(int connection);  // of the peer; UINT32_MAX: unknown

struct Packet {
    enum class Kind { message, nothing_yet, closed, bad } kind = Kind::nothing_yet;
    alignas(8) std::byte bytes[NEXAR_MSG_BYTES_MAX];
    size_t size = 0;
    std::vector<Fd> fds;
    bool out_of_descriptors = false;  // the kernel dropped its descriptors: this process has too many
    std::string problem{};            // with bad
};
// More than NEXAR_MSG_FDS_MAX descriptors make the packet bad. The caller gives its descriptors to a
// Releaser, unless it knows what they are [S16].
Packet receive_packet(int connection);

// False: the socket is full or closed. Never blocks, never raises SIGPIPE.
bool send_packet(int connection, Bytes bytes, std::span<const int> fds = {});

}  // namespace nexar::local
