// The ready queue. A completion only pushes; run_ready() alone runs, from the loop's top, in order. So no
// code is re-entered, and a simulation replays from its seed. Thread: one.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "core/recycled.hpp"

namespace nexar {

// Something that can be queued to run once. Not owned by the queue.
class Runnable {
  public:
    virtual void run() = 0;

  protected:
    ~Runnable() = default;

  private:
    friend class Executor;
    size_t queued_ = 0;  // entries in the ready queue
};

class Executor {
  public:
    Executor() = default;
    Executor(const Executor&) = delete;
    Executor& operator=(const Executor&) = delete;

    void push(Runnable* r) {
        ready_.push_back(r);
        ++r->queued_;
    }
    // Not behind itself: for what does all its work in one run.
    void push_once(Runnable* r) {
        if (r->queued_ == 0) push(r);
    }

    // Runs until nothing is ready; returns how many ran. What runs may push more.
    size_t run_ready() {
        size_t n = 0;
        while (!ready_.empty()) {
            Runnable* r = ready_.front();
            ready_.pop_front();
            if (r == nullptr) continue;  // forget() took it out
            ++n;
            --r->queued_;
            r->run();
        }
        return n;
    }
    // A runnable that is about to be destroyed leaves the queue.
    void forget(Runnable* r) {
        if (std::exchange(r->queued_, 0) == 0) return;
        for (Runnable*& entry : ready_)
            if (entry == r) entry = nullptr;
    }
    bool idle() const { return ready_.empty(); }

  private:
    std::deque<Runnable*, Recycled<Runnable*>> ready_;  // in the order of push(); null: forget() took it out
};

}  // namespace nexar
