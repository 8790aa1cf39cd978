#include "loop/wakeup.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/check.hpp"

namespace nexar::loop {

Wakeup::Wakeup() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    NEXAR_CHECK(fd_ >= 0);
}
Wakeup::~Wakeup() {
    close(fd_);
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
    pollfd one{fd_, POLLIN, 0};
    if (poll(&one, 1, -1) > 0) drain();
}

void Wakeup::drain() {
    uint64_t count;
    [[maybe_unused]] const auto n = read(fd_, &count, sizeof count);
}

}  // namespace nexar::loop
