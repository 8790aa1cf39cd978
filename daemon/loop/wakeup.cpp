#include "loop/wakeup.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "loop/no_descriptor.hpp"

namespace nexar::loop {

Wakeup::Wakeup() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), error_(fd_ < 0 ? errno : 0) {}
Wakeup::~Wakeup() {
    if (fd_ >= 0) close(fd_);
}

Result<void> Wakeup::made() const {
    if (error_ == 0) return {};
    errno = error_;
    return fail_without_descriptor("an eventfd");
}

bool Wakeup::write_fd() {
    // One write for each announced sleep is enough; the next announcement arms it again.
    if (!sleeping_.exchange(false, std::memory_order_relaxed)) return false;
    const uint64_t one = 1;
    [[maybe_unused]] const auto n =
        write(fd_, &one, sizeof one);  // can only fail when it is already readable
    return true;
}

void Wakeup::sleep() {
    constexpr int without_ms = 10;
    pollfd one{fd_, POLLIN, 0};
    if (poll(&one, 1, fd_ >= 0 ? -1 : without_ms) > 0) drain();
}

void Wakeup::drain() {
    uint64_t count;
    [[maybe_unused]] const auto n = read(fd_, &count, sizeof count);
}

}  // namespace nexar::loop
