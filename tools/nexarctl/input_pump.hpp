// Copies this process's standard input to a pipe: a rank is in a process group of its own and could not read
// the terminal itself. Thread: one.
#pragma once

#include <poll.h>

#include <array>
#include <cstddef>

#include "nexarctl/descriptor.hpp"

namespace nexarctl {

class InputPump {
  public:
    // `to`: a pipe's writing end that does not block; it is closed at the input's end.
    void open(int to) { to_ = Descriptor(to); }
    void close() { to_.reset(); }
    // What poll() is to wait for before move(); fd -1: nothing.
    pollfd wants() const;
    void move();

  private:
    void read();
    void write();

    Descriptor to_;                     // none: the reader or the input has ended
    std::array<char, 16384> buffer_{};  // read and not yet written: [begin_, end_)
    size_t begin_ = 0, end_ = 0;
};

}  // namespace nexarctl
