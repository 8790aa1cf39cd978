// TickWatch: decides by the daemon's tick whether the daemon runs (docs/protocol/shm.md [S9]). One rule for
// all threads of a session: a tick that does not move may mean that this process was stopped together with
// the daemon (a frozen container), so it gets a grace of two more periods.
//
// Thread: any.
#pragma once

#include <atomic>
#include <mutex>

#include "core/time.hpp"

namespace nexar::c {

class TickWatch {
  public:
    // `limit`: how long the tick may stay the same; Duration::max(): without a limit.
    explicit TickWatch(Duration limit) : limit_(limit) {}

    // When to call expired(), at the earliest, if the last tick was at `tick`. Cheap.
    Time check_at(Time tick) const;
    // Called from check_at() on. read() returns (tick, now) under the lock, because an older pair than
    // another thread's would undo that thread's finding. True is final: report(true) has notified the daemon,
    // and the tick did not move afterwards. When it moves, report(false) revokes that [S15].
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
    bool given_up_ = false;                      // final: expired() has returned true
    Time stale_tick_{};                          // the tick that was older than limit_
    std::atomic<Duration::rep> stale_since_{0};  // when that was found; 0: the tick moves
};

}  // namespace nexar::c
