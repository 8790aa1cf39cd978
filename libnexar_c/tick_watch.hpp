// Whether the daemon runs, by its tick. One rule for all threads of a session: a tick that stands still may
// mean that we were stopped together with the daemon (a frozen container), so it gets two more periods before
// it is believed. docs/protocol/shm.md [S9]. Any thread.
#pragma once

#include <atomic>
#include <mutex>

#include "core/time.hpp"

namespace nexar::c {

class TickWatch {
  public:
    // `limit`: for how long a tick may stand still; Duration::max(): for ever.
    explicit TickWatch(Duration limit) : limit_(limit) {}

    // When to call expired(), at the earliest, if the last tick was at `tick`. Cheap.
    Time check_at(Time tick) const;
    // To be called from then on. `tick` and `now` are read by whoever holds the lock: an older pair than
    // another thread's would undo what that one saw.
    template <class Read>
    bool expired(Read read) {
        std::lock_guard lock(mutex_);
        const auto [tick, now] = read();
        return expired_at(tick, now);
    }

  private:
    bool expired_at(Time tick, Time now);

    const Duration limit_;
    std::mutex mutex_;
    Time stale_tick_{};                          // the tick that was found standing still
    std::atomic<Duration::rep> stale_since_{0};  // when; 0: it moves
};

}  // namespace nexar::c
