// recvmsg() on a unix socket whose sender may pass descriptors. It takes them all: what the kernel finds no
// room for it closes in this thread, which may block ([S16] in docs/protocol/shm.md). Source: unix(7).
#pragma once

#include <sys/types.h>

#include <vector>

#include "core/bytes.hpp"
#include "loop/fd.hpp"

namespace nexar::loop {

struct Received {
    ssize_t bytes = -1;             // as recvmsg() returns; errno says why it is negative
    bool cut = false;               // the message is longer than the buffer
    bool out_of_room = false;       // the process has no room for its descriptors (EMFILE); some are closed
    std::vector<Fd> descriptors{};  // to be given to a Releaser, unless they are known to close at once
};
// Never blocks, and is not interrupted.
Received receive(int connection, MutableBytes into);
// Whether the next message has descriptors; it stays where it is.
bool brings_descriptors(int connection);

}  // namespace nexar::loop
