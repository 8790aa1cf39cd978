// Wakeup: how another thread of the daemon gets a sleeping one out of its poll. An eventfd that no client
// ever sees. The sleeper announces itself (sleeping = true, seq_cst), rechecks its queues, then polls the
// descriptor; a notifier pushes first and writes the descriptor only when it sees the announcement. Either
// the recheck sees the push, or the notifier sees the announcement: sequential consistency forbids that both
// miss.
#pragma once

#include <atomic>

namespace nexar::loop {

class Wakeup {
  public:
    Wakeup();
    ~Wakeup();
    Wakeup(const Wakeup&) = delete;
    Wakeup& operator=(const Wakeup&) = delete;

    int fd() const { return fd_; }

    // Any thread, after its push.
    void notify() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        if (sleeping_.load(std::memory_order_relaxed)) write_fd();
    }
    // Sleeper, before its recheck and poll.
    void announce_sleep() {
        sleeping_.store(true, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
    // Sleeper, awake again.
    void awake() { sleeping_.store(false, std::memory_order_relaxed); }
    // Sleeper, when the poll says that the descriptor is readable (a write may come after awake()).
    void drain();

  private:
    void write_fd();
    int fd_;
    std::atomic<bool> sleeping_{false};
};

}  // namespace nexar::loop
