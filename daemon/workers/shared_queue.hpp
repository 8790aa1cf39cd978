// SharedQueue: a FairQueue between the control loop, which pushes, and the workers, which take. A push waits
// for nobody [K32]: new jobs go into a list without a lock, and who takes a piece sorts them in first.
//
// Thread: push() is the control loop's; take() and any() are anybody's.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "workers/fair_queue.hpp"

namespace nexar::workers {

class SharedQueue {
  public:
    SharedQueue() = default;
    ~SharedQueue() { sort_in(); }  // the list's
    SharedQueue(const SharedQueue&) = delete;
    SharedQueue& operator=(const SharedQueue&) = delete;

    // Requires: the job has bytes.
    void push(std::shared_ptr<Job> job);
    std::optional<Piece> take();  // nothing: no piece waits
    // Acquire: who finds the list empty sees that its jobs wait.
    bool any() const {
        return arrived_.load(std::memory_order_acquire) != nullptr ||
               any_waits_.load(std::memory_order_relaxed);
    }
    // As one that the kernel stops while it takes: for tests.
    std::unique_lock<std::mutex> hold() { return std::unique_lock(lock_); }

  private:
    struct Arrived {
        std::shared_ptr<Job> job;
        Arrived* next;
    };
    void sort_in();

    std::atomic<Arrived*> arrived_{nullptr};  // the newest first; each is owned by who takes the list
    std::mutex lock_;                         // between those that take
    FairQueue waiting_;                       // under lock_
    std::atomic<bool> any_waits_{false};      // waiting_ is not empty; written under lock_
};

}  // namespace nexar::workers
