// Releaser: gives back what clients brought, on threads of its own, because that may take as long as a client
// likes [S16]: close() of a socket that lingers, or of a file whose file system is another process;
// munmap() of the last reference to gigabytes. The servers of sessions and of the admin socket have one for
// connections and descriptors, the server of sessions another one for mappings. The Sealer uses one as
// threads with lanes: there before_release is the work, which waits for a client as well.
//
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/bytes.hpp"
#include "loop/fd.hpp"

namespace nexar::loop {

struct Released {
    std::function<void()> before_release{};  // done on the thread; may wait as well
    MutableBytes mapping{};
    std::vector<Fd> descriptors{};
    std::shared_ptr<const void> until{};  // kept until it is given back
};

class Releaser {
  public:
    // What the lanes do not share: how long one of them takes holds up no other, up to `threads_max` that
    // are stuck at a time. A thread ends when it has nothing to do for a second.
    explicit Releaser(size_t threads_max);
    // Waits for nothing: the threads end when all is given back. What is stuck then is left to the end of
    // the process, where nothing lingers.
    ~Releaser();
    Releaser(const Releaser&) = delete;
    Releaser& operator=(const Releaser&) = delete;

    // Those of one lane are given back one after the other.
    void release(uint64_t lane, Released what);
    void release(uint64_t lane, Fd descriptor);
    // Descriptors that are not closed yet.
    size_t descriptors(uint64_t lane) const;
    size_t descriptors() const;

    // Until all is given back, for tests: false after `seconds`.
    bool idle_within(unsigned seconds) const;

  private:
    struct State;
    void start_thread();
    static void run(const std::shared_ptr<State>& state);
    std::shared_ptr<State> state_;  // also the threads'
};

using ReleaserRef = std::shared_ptr<Releaser>;

}  // namespace nexar::loop
