// Releaser: gives back what clients brought, on threads of its own, because that may take as long as a client
// likes [S16]: close() of a socket that lingers, or of a file whose file system is another process;
// munmap() of the last reference to gigabytes. A close() is not left to wait for long: signals interrupt it.
// The servers of sessions and of the admin socket have one for connections and descriptors, the server of
// sessions another one for mappings.
//
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "loop/fd.hpp"
#include "loop/lanes.hpp"

namespace nexar::loop {

struct Released {
    MutableBytes mapping{};
    std::vector<Fd> descriptors{};                 // closed when the mapping is gone
    std::shared_ptr<const void> until{};           // kept until all is given back
    std::move_only_function<void()> connection{};  // instead of a descriptor: gives it back
};

// A user's lanes where clients' connections are closed, and the descriptors that they passed, which may be
// stuck while the former go on [S16].
constexpr uint64_t connections_lane(uint64_t user) {
    return 2 * user;
}
constexpr uint64_t descriptors_lane(uint64_t user) {
    return 2 * user + 1;
}

class Releaser {
  public:
    // `closings_wait`: nothing interrupts them, for tests.
    static Result<std::shared_ptr<Releaser>> open(size_t threads_max, bool closings_wait = false);
    Releaser(Lanes lanes, bool closings_wait) : closings_wait_(closings_wait), lanes_(std::move(lanes)) {}

    // Those of one lane are given back one after the other.
    void release(uint64_t lane, Released what);
    void release(uint64_t lane, Fd descriptor);
    // Descriptors that are not closed yet, and connections.
    size_t descriptors(uint64_t lane) const { return lanes_.weight(lane); }
    size_t descriptors() const { return lanes_.weight(); }

    // Until all is given back, for tests: false after `seconds`.
    bool idle_within(unsigned seconds) const { return lanes_.idle_within(seconds); }

  private:
    const bool closings_wait_;
    Lanes lanes_;
};

using ReleaserRef = std::shared_ptr<Releaser>;

}  // namespace nexar::loop
