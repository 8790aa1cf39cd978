// The control loop: libuv behind five functions. This folder is the only one that includes <uv.h>, and its
// callbacks do one thing: they call what was registered. All work happens in the turn, from the loop's top.
// Thread: the one that calls run(), except where said.
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

    static Time now();  // CLOCK_MONOTONIC, read fresh: libuv's cached milliseconds are too coarse

    // Watches a descriptor while it lives. Level-triggered, also after an error, which is `readable`: the
    // callback must take it off, or end the watch. The callback may destroy its own Watch.
    class Watch {
      public:
        virtual ~Watch() = default;
        virtual void want(bool readable, bool writable) = 0;
    };
    struct Ready {
        bool readable = false, writable = false, hung_up = false;
    };
    std::unique_ptr<Watch> watch(int fd, bool readable, bool writable, std::function<void(Ready)> on_ready);

    // The turn runs before every poll and says until when the loop may sleep; a time that has passed means
    // that it must not. (One timerfd: libuv's own timers have millisecond steps.)
    void set_turn(std::function<Time()> turn);

    void on_signal(int signal, std::function<void(int)> handler);
    void run();
    void stop();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nexar::loop
