#include "nexarctl/input_pump.hpp"

#include <cerrno>

namespace nexarctl {

namespace {

// A process in the background that reads its terminal is stopped.
bool may_read() {
    return ::isatty(STDIN_FILENO) == 0 || ::tcgetpgrp(STDIN_FILENO) == ::getpgrp();
}

}  // namespace

pollfd InputPump::wants() const {
    if (to_.fd < 0) return {-1, 0, 0};
    if (begin_ < end_) return {to_.fd, POLLOUT, 0};
    return {may_read() ? STDIN_FILENO : -1, POLLIN, 0};
}

void InputPump::move() {
    if (begin_ == end_) read();
    write();
}

void InputPump::read() {
    const ssize_t got = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return close();
    begin_ = 0;
    end_ = static_cast<size_t>(got);
}

void InputPump::write() {
    while (to_.fd >= 0 && begin_ < end_) {
        const ssize_t n = ::write(to_.fd, buffer_.data() + begin_, end_ - begin_);
        if (n > 0)
            begin_ += static_cast<size_t>(n);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            close();  // the rank reads no more
    }
}

}  // namespace nexarctl
