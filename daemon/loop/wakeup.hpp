// Wakeup: one thread of the daemon ends another thread's poll. An eventfd that no client can reach. The
// sleeper announces its sleep (sleeping = true, seq_cst), rechecks its queues, then polls the descriptor; a
// notifier pushes first and writes the descriptor only when it sees the announcement. Either the recheck sees
// the push, or the notifier sees the announcement: sequential consistency forbids that both miss.
#pragma once

#include <atomic>

#include "core/result.hpp"

namespace nexar::loop {

class Wakeup {
  public:
    Wakeup();
    ~Wakeup();
    Wakeup(const Wakeup&) = delete;
    Wakeup& operator=(const Wakeup&) = delete;

    // An error: the system had no descriptor for it. The start of what sleeps on it asks, and fails. A sleep
    // ends by itself after a moment then, so that a thread that sleeps already sees that it is to end.
    Result<void> made() const;
    int fd() const { return fd_; }  // -1: it is not made

    // Thread: any, after its push. True: the sleeper was asleep, and nobody else has woken it.
    bool notify() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        return sleeping_.load(std::memory_order_relaxed) && write_fd();
    }
    // Thread: the sleeper, before its recheck and poll.
    void announce_sleep() {
        sleeping_.store(true, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    // Thread: the sleeper, after its poll.
    void awake() { sleeping_.store(false, std::memory_order_relaxed); }
    // Polls, and drains. Thread: the sleeper, in the place of its poll.
    void sleep();
    // Until it is done, which a notifier makes it before it notifies. Each sleep is announced anew: who saw
    // an earlier announcement may use up the present one, and it is another notification that ends the wait.
    // Thread: the sleeper.
    template <class Done>
    void wait_until(Done done) {
        while (!done()) {
            announce_sleep();
            if (!done()) sleep();
            awake();
        }
    }
    // Thread: the sleeper, when the poll reported the descriptor as readable (a write may follow awake()).
    void drain();

  private:
    bool write_fd();
    int fd_;                             // the eventfd
    int error_;                          // why there is none; 0: there is
    std::atomic<bool> sleeping_{false};  // announced, and no notifier has written since
};

}  // namespace nexar::loop
