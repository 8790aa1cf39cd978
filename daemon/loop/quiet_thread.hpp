// A thread in which all signals stay blocked: the loop's thread handles them, and SIGPIPE must end nothing.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

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
    return std::thread(std::move(run));
}

}  // namespace nexar::loop
