// A thread in which all signals stay blocked: the loop's thread handles them, and SIGPIPE must end nothing.
#pragma once

#include <signal.h>

#include <thread>
#include <utility>

namespace nexar::loop {

std::thread quiet_thread(auto run) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread out(std::move(run));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return out;
}

}  // namespace nexar::loop
