// See summons.hpp.
#include "loop/summons.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/check.hpp"

namespace nexar::loop {

Summons::Summons()
    : calls_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), waiting_(::epoll_create1(EPOLL_CLOEXEC)) {
    NEXAR_CHECK(calls_ && waiting_);
    // Edge by edge: nobody reads the count, and each write is one event.
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = calls_.get()}};
    NEXAR_CHECK(::epoll_ctl(waiting_.get(), EPOLL_CTL_ADD, calls_.get(), &event) == 0);
}

void Summons::call() {
    const uint64_t one = 1;
    static_cast<void>(::write(calls_.get(), &one, sizeof one));  // the count is never full
}

void Summons::wait(int milliseconds) {
    epoll_event event{};
    static_cast<void>(::epoll_wait(waiting_.get(), &event, 1, milliseconds));
}

}  // namespace nexar::loop
