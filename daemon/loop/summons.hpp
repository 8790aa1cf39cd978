// Summons: a thread has one of several that wait for work look for it, and never waits for them itself.
// glibc's condition variable does: who notifies it waits until threads notified before have had the processor
// (until 2.41). And the wake of a futex goes through all that waits in its hash bucket. An eventfd does
// neither.
//
// Thread: any.
#pragma once

#include <utility>

#include "core/result.hpp"
#include "loop/fd.hpp"

namespace nexar::loop {

class Summons {
  public:
    static Result<Summons> open();

    // One thread that waits returns, or the next that comes. Calls that nobody has come to yet are one: so
    // who comes calls again if there is more work.
    void call();
    // Until a call, `milliseconds` (-1: without end), or for no reason.
    void wait(int milliseconds);

  private:
    Summons(Fd calls, Fd waiting) : calls_(std::move(calls)), waiting_(std::move(waiting)) {}

    Fd calls_, waiting_;  // an eventfd, and the epoll of it in which the kernel wakes one thread
};

}  // namespace nexar::loop
