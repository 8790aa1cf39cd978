// How long a waiter stays on the processor before it sleeps: as long as recent waits suggest, up to a limit.
// Dry: durations are given. design.md §4.4 has the measurements: with more waiters than cores, yielding beats
// both sleeping (a futex round trip is 20 us) and spinning (which keeps the awaited one off the core).
#pragma once

#include <atomic>
#include <cstdint>

#include "core/time.hpp"

namespace nexar::shm {

class WaitWindow {
  public:
    explicit WaitWindow(Duration limit) : limit_(limit), average_ns_(limit.count() / 4) {}

    // How long to stay before sleeping.
    Duration window() const;
    // A wait took so long altogether. Any thread; lost updates are harmless.
    void on_wait_ended(Duration took);

    // Pause-spinning is for when everyone who runs has a core of its own: the waiters and the daemon.
    static bool may_spin(unsigned waiters, unsigned cores) { return waiters + 1 <= cores; }

  private:
    Duration limit_;
    std::atomic<int64_t> average_ns_;
};

}  // namespace nexar::shm
