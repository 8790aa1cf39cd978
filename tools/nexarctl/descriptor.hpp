// A file descriptor that closes itself.
#pragma once

#include <unistd.h>

#include <utility>

namespace nexarctl {

struct Descriptor {
    int fd = -1;  // -1: none
    Descriptor() = default;
    explicit Descriptor(int open) : fd(open) {}
    Descriptor(Descriptor&& other) noexcept : fd(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        if (this != &other) {
            reset();
            fd = other.release();
        }
        return *this;
    }
    ~Descriptor() { reset(); }

    int release() { return std::exchange(fd, -1); }
    void reset() {
        if (fd >= 0) ::close(fd);
        fd = -1;
    }
};

}  // namespace nexarctl
