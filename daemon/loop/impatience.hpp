// Impatience: while one exists, no system call of its thread waits for long where a signal may end the wait:
// one comes again and again. close() of the last descriptor of a socket that lingers waits so (socket(7),
// SO_LINGER); what it would have waited for goes on without it.
//
// Thread: one per thread at a time; it is for threads of which nobody expects a whole read or write.
#pragma once

#include <ctime>

namespace nexar::loop {

class Impatience {
  public:
    Impatience();
    ~Impatience();
    Impatience(const Impatience&) = delete;
    Impatience& operator=(const Impatience&) = delete;

  private:
    timer_t timer_{};
    bool armed_ = false;  // false: the system has no timer left, and waits are as long as they are
};

}  // namespace nexar::loop
