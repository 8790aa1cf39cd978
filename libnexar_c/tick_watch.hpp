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
    // another thread's would undo what that one saw. True is final: before, the daemon was told by
    // report(true), and the tick did not move for it; if it did, that is taken back by report(false) [S15].
    template <class Read, class Report>
    bool expired(Read read, Report report) {
        std::lock_guard lock(mutex_);
        const auto [tick, now] = read();
        if (given_up_ || !expired_at(tick, now)) return given_up_;
        report(true);
        const auto [tick_after, after] = read();
        given_up_ = tick_after == tick;
        if (!given_up_) report(false);
        return given_up_;
    }

  private:
    bool expired_at(Time tick, Time now);

    const Duration limit_;
    std::mutex mutex_;
    bool given_up_ = false;
    Time stale_tick_{};                          // the tick that was found standing still
    std::atomic<Duration::rep> stale_since_{0};  // when; 0: it moves
};

}  // namespace nexar::c
