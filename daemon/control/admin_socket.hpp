// The admin socket's system calls: a listening socket with the right mode from the first moment, and the
// credentials of a connection.
#pragma once

#include <string>

#include "control/facade.hpp"
#include "core/result.hpp"

namespace nexar::control {

// Opens a listening stream socket. It replaces a stale socket, but not one with a listener. `group` may be
// empty. Owner: the caller closes the descriptor.
struct AdminSocket {
    int fd = -1;
    uint32_t group = 0;  // its members may send commands that change something
    uint64_t device = 0, inode = 0;
};
Result<AdminSocket> listen_on(const std::string& path, unsigned mode, const std::string& group);

// Removes the path if it still names this socket.
void remove_socket(const std::string& path, const AdminSocket& socket);

// Reads SO_PEERCRED and SO_PEERGROUPS, which the kernel recorded at connect().
Result<Caller> caller_of(int connection, uint32_t group);

}  // namespace nexar::control
