// A thread in which all signals stay blocked: the loop's thread handles them, and SIGPIPE must end nothing.
// Its slice is the kernel's own, whatever that of the thread that starts it.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

#include "loop/processor.hpp"

namespace nexar::loop {

// The calling thread has its signals back also when the system has no thread left: with SIGBUS blocked, the
// next fault in a client's memory would end the daemon.
std::thread quiet_thread(auto run) {
    struct Blocked {
        sigset_t before;
        Blocked() {
            sigset_t all;
            sigfillset(&all);
            pthread_sigmask(SIG_SETMASK, &all, &before);
        }
        ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    } const blocked;
    return std::thread([run = std::move(run)]() mutable {
        set_slice(Slice::usual);
        run();
    });
}

}  // namespace nexar::loop
