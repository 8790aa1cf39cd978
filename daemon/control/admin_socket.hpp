// The admin socket's system calls: listening with the right mode from the first moment, and who is at the
// other end.
#pragma once

#include <string>

#include "control/facade.hpp"
#include "core/result.hpp"

namespace nexar::control {

// A listening stream socket. Replaces a stale one, but not one on which somebody listens. `group` may be
// empty. Its descriptor is the caller's.
struct AdminSocket {
    int fd = -1;
    uint32_t group = 0;  // whose members may change things
    uint64_t device = 0, inode = 0;
};
Result<AdminSocket> listen_on(const std::string& path, unsigned mode, const std::string& group);

// Removes the path if it is still this socket.
void remove_socket(const std::string& path, const AdminSocket& socket);

// From SO_PEERCRED and SO_PEERGROUPS: what the kernel noted at connect().
Result<Caller> caller_of(int connection, uint32_t group);

}  // namespace nexar::control
