// See summons.hpp.
#include "loop/summons.hpp"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "loop/no_descriptor.hpp"

namespace nexar::loop {

Result<Summons> Summons::open() {
    Fd calls(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!calls) return fail_without_descriptor("an eventfd");
    Fd waiting(::epoll_create1(EPOLL_CLOEXEC));
    if (!waiting) return fail_without_descriptor("an epoll");
    // Edge by edge: nobody reads the count, and each write is one event.
    epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.fd = calls.get()}};
    if (::epoll_ctl(waiting.get(), EPOLL_CTL_ADD, calls.get(), &event) != 0)
        return fail_without_descriptor("an epoll's item");
    return Summons(std::move(calls), std::move(waiting));
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
