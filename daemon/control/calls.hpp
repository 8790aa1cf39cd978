// Calls: makes the system calls on callers' connections, on threads: they take as long as a caller likes
// ([S16] in docs/protocol/shm.md).
//
// Thread: the control loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "loop/fd.hpp"
#include "loop/lanes.hpp"
#include "loop/releaser.hpp"

namespace nexar::control {

// A caller's connection.
struct Socket {
    loop::Fd fd;
    uint64_t connection = 0;
    uint32_t uid = 0;
};
using SocketRef = std::shared_ptr<Socket>;

class Calls {
  public:
    struct Ended {
        enum class What { received, end_of_file, written, full, broken } what = What::broken;
        uint64_t connection = 0;
        std::string bytes;  // received; full: left to write
    };

    // At most one thread for each connection. The closer gets what is to be closed.
    static Result<std::unique_ptr<Calls>> open(size_t connections_max, loop::ReleaserRef closer);

    // Of one connection in the order in which they came; each ends in take().
    void read(const SocketRef& socket);
    void write(const SocketRef& socket, std::string bytes);
    void answer(const SocketRef& socket, Result<std::string> result);  // writes its line [N17]
    // When the others have ended. The caller has no reference any more.
    void hang_up(SocketRef socket);
    size_t to_hang_up() const { return lanes_.weight(); }
    size_t unclosed(uint32_t uid) const;  // of the user's connections that were to be hung up

    int ready_fd() const;  // readable while something is there to take
    std::vector<Ended> take();

    static constexpr size_t unclosed_of_user_max = 16;  // descriptors; no request needs any

  private:
    struct State;
    Calls(std::shared_ptr<State> state, loop::Lanes lanes);

    std::shared_ptr<State> state_;  // also the threads'
    loop::Lanes lanes_;
};

}  // namespace nexar::control
