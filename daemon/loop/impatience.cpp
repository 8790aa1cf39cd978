// See impatience.hpp.
#include "loop/impatience.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

namespace nexar::loop {

namespace {

constexpr long first_ns = 200'000, next_ns = 50'000;

// Only a signal that is handled interrupts.
void install_handler() {
    static const bool once = [] {
        struct sigaction action{};
        action.sa_handler = [](int) {};
        return ::sigaction(SIGURG, &action, nullptr) == 0;
    }();
    static_cast<void>(once);
}

void block(int how) {
    sigset_t urgent;
    sigemptyset(&urgent);
    sigaddset(&urgent, SIGURG);
    pthread_sigmask(how, &urgent, nullptr);
}

}  // namespace

Impatience::Impatience() {
    install_handler();
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGURG;
    event._sigev_un._tid = ::gettid();
    armed_ = ::timer_create(CLOCK_MONOTONIC, &event, &timer_) == 0;
    if (!armed_) return;
    block(SIG_UNBLOCK);
    const itimerspec often{{0, next_ns}, {0, first_ns}};
    ::timer_settime(timer_, 0, &often, nullptr);
}

// A signal that is pending still is handled before the threads blocks it again, or stays pending there.
Impatience::~Impatience() {
    if (!armed_) return;
    ::timer_delete(timer_);
    block(SIG_BLOCK);
}

}  // namespace nexar::loop
