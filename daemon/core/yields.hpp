// Yields: whether it pays for a thread that waits to yield its processor and look again, or to sleep.
//
// A yield among threads that all wait for each other is short, and cheaper than a sleep. Beside threads that
// compute it costs milliseconds: the kernel lets each of these run for its whole slice first, and puts a
// thread that yields behind them also in what follows (Linux 6.18: it forfeits a slice), while one that
// sleeps is preferred to them when it is woken. So after a long yield its thread does without for a while,
// longer each time that it is followed by another soon. Dry.
//
// Thread: any.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "core/time.hpp"

namespace nexar {

class Yields {
  public:
    // Longer than threads that wait for each other take, shorter than the slice of one that computes.
    static constexpr Duration long_yield{600'000};
    static constexpr Duration pause_min{200'000'000}, pause_max{2'000'000'000};

    bool pays(Time now) const { return ns_of(now) >= again_.load(std::memory_order_relaxed); }
    // False: it was a long one, so yields do not pay any more.
    bool ended(Time began, Time now) {
        if (now - began < long_yield) return true;
        const int64_t again = again_.load(std::memory_order_relaxed);
        if (ns_of(began) < again) return false;  // at the same time as another thread's, which has counted it
        const int64_t pause = pause_.load(std::memory_order_relaxed);
        const bool soon = ns_of(began) - again < pause;
        const int64_t next = soon ? std::min(2 * pause, pause_max.count()) : pause_min.count();
        pause_.store(next, std::memory_order_relaxed);
        again_.store(ns_of(now) + next, std::memory_order_relaxed);
        return false;
    }

  private:
    static int64_t ns_of(Time time) { return time.time_since_epoch().count(); }

    std::atomic<int64_t> again_{INT64_MIN / 2};      // when the pause ends
    std::atomic<int64_t> pause_{pause_min.count()};  // the latest
};

}  // namespace nexar
