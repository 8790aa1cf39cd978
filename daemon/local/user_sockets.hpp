// UserSockets: the descriptors of sessions, in one epoll for each user. The loop watches those, so what it
// reads in a turn is bounded for each user, whatever number of sessions ring (docs/protocol/tenants.md
// [N12]). The kernel keeps the order: a descriptor that was reported is behind the user's others.
//
// Thread: the control loop's.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "core/result.hpp"
#include "loop/fd.hpp"

namespace nexar::local {

class UserSockets {
  public:
    // Reported by ready() with this key while it is readable. `first`: the user has an epoll since now.
    struct Added {
        int epoll = -1;
        bool first = false;
    };
    Result<Added> add(uint64_t user, int fd, uint64_t key);
    // The user's epoll, if this was its last descriptor: it closes when the result ends. Requires: fd was
    // added, and is open.
    loop::Fd remove(uint64_t user, int fd);
    struct Ready {
        uint64_t key = 0;
        bool ended = false;  // also
    };
    // Readable ones, as many as there is room for. Never waits.
    std::span<Ready> ready(uint64_t user, std::span<Ready> out);

  private:
    struct Row {
        loop::Fd epoll;
        size_t descriptors = 0;
    };
    std::map<uint64_t, Row> rows_;  // by user; those that have descriptors
};

}  // namespace nexar::local
