// How long a waiter stays on the processor before it sleeps: as long as recent waits suggest, up to a limit.
// Dry: the caller passes durations. Measured: with more waiters than cores, yielding beats both sleeping (a
// futex round trip takes 20 us) and spinning (which keeps the awaited thread off the core).
#pragma once

#include <atomic>
#include <cstdint>

#include "core/time.hpp"

namespace nexar::shm {

class WaitWindow {
  public:
    explicit WaitWindow(Duration limit) : limit_(limit), average_ns_(limit.count() / 4) {}

    // How long to stay before the sleep.
    Duration window() const;
    // Reports a wait's whole duration. Thread: any; a lost update is harmless.
    void on_wait_ended(Duration took);

    // Spinning pays only when each waiter and the daemon has a core of its own.
    static bool may_spin(unsigned waiters, unsigned cores) { return waiters + 1 <= cores; }

  private:
    Duration limit_;                   // window() returns no more
    std::atomic<int64_t> average_ns_;  // of recent waits, each weighing 1/8
};

}  // namespace nexar::shm
