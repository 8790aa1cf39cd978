// Yields: whether it pays for a thread that waits to yield its processor and look again, or to sleep.
//
// A yield among threads that all wait for each other is short, and cheaper than a sleep. Beside threads that
// compute it costs milliseconds: the kernel lets each of these run for its whole slice first, and puts a
// thread that yields behind them also in what follows (Linux 6.18: it forfeits a slice), while one that
// sleeps is preferred to them when it is woken. So after a long yield its thread does without for a while:
// for as long as that one took if the short ones before it were worth it, else for twice the time before, up
// to 20 ms: what computes may end soon. Dry.
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
    static constexpr Duration pause_max{20'000'000};
    // What a short one saves: measured, two hosts with a processor each, 8 bytes: 20 us by four yields each,
    // 55 by sleeps.
    static constexpr Duration worth{5'000};
    // Between pieces of bulk. Others' pieces, of 100 to 300 us each, are not what computes; and a pause costs
    // only the latency of others, while each yield beside what computes costs bulk a tick of 4 ms.
    static constexpr Duration long_between_pieces{1'500'000};
    static constexpr Duration pause_max_between_pieces{100'000'000};
    // Of the latency of others. A piece takes ten times as long, so that long yields which short ones pay for
    // take bulk a tenth of the time at most.
    static constexpr Duration worth_between_pieces{25'000};

    Yields() = default;
    static Yields between_pieces() {
        return {long_between_pieces, pause_max_between_pieces, worth_between_pieces};
    }

    // `bulk_threads` of this host's daemon have work (AtWork). Unless there are processors for these, the
    // control loop and the one that waits, one that yields stands behind their next pieces; one that sleeps
    // is put before them when it is woken.
    static constexpr bool may_pay(uint32_t bulk_threads, unsigned cores) {
        return bulk_threads == 0 || (cores >= 2 && bulk_threads <= cores - 2);
    }
    bool pays(Time now) const { return ns_of(now) >= again_.load(std::memory_order_relaxed); }
    // False: it was a long one, so yields do not pay any more.
    bool ended(Time began, Time now) {
        const Duration took = now - began;
        if (took < long_at_) {
            short_.store(short_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
            return true;
        }
        // At the same time as another thread's, which has counted it?
        if (ns_of(began) < again_.load(std::memory_order_relaxed)) return false;
        const bool was_worth_it = took / worth_ <= short_.exchange(0, std::memory_order_relaxed);
        const Duration doubled(2 * pause_.load(std::memory_order_relaxed));
        const Duration next = std::min(was_worth_it ? took : std::max(took, doubled), pause_at_most_);
        pause_.store(next.count(), std::memory_order_relaxed);
        again_.store(ns_of(now + next), std::memory_order_relaxed);
        return false;
    }

  private:
    Yields(Duration long_at, Duration pause_at_most, Duration worth_of_short)
        : long_at_(long_at), pause_at_most_(pause_at_most), worth_(worth_of_short) {}
    static int64_t ns_of(Time time) { return time.time_since_epoch().count(); }

    const Duration long_at_ = long_yield, pause_at_most_ = pause_max, worth_ = worth;
    std::atomic<int64_t> again_{INT64_MIN / 2};  // when the pause ends
    std::atomic<int64_t> pause_{0};              // the latest
    std::atomic<int64_t> short_{0};              // short ones since then; a few of several threads are lost
};

}  // namespace nexar
