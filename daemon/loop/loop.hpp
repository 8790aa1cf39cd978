// The control loop: libuv behind five functions. This folder alone includes <uv.h>, and its callbacks only
// call the registered functions. All work happens in the turn, from the loop's top. Thread: the one that
// calls run(), except where stated.
#pragma once

#include <functional>
#include <memory>

#include "core/time.hpp"

namespace nexar::loop {

class Loop {
  public:
    Loop();
    ~Loop();
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;

    static Time now();  // reads CLOCK_MONOTONIC: libuv's cached milliseconds are too coarse. Thread: any

    // Watches a descriptor until it is destroyed. Level-triggered, also after an error, which is `readable`.
    // Requires: the callback reads the error off the descriptor, or destroys its Watch (which it may do).
    class Watch {
      public:
        virtual ~Watch() = default;
        virtual void want(bool readable, bool writable) = 0;
    };
    struct Ready {
        bool readable = false, writable = false, hung_up = false;
    };
    std::unique_ptr<Watch> watch(int fd, bool readable, bool writable, std::function<void(Ready)> on_ready);

    // The turn runs before every poll and returns until when the loop may sleep; a past time forbids a sleep.
    // Deadlines use a timerfd, since libuv's own timers have steps of a millisecond.
    void set_turn(std::function<Time()> turn);

    void on_signal(int signal, std::function<void(int)> handler);
    void run();
    void stop();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nexar::loop
