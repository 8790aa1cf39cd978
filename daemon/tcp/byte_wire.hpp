// ByteWire: what a TCP machine reads from and writes to: a socket that does not block (transport/tcp_socket),
// or memory in tests and in the simulator.
#pragma once

#include <cstddef>
#include <string>

#include "core/bytes.hpp"

namespace nexar::tcp {

class ByteWire {
  public:
    enum class State : unsigned char {
        moved,    // `bytes` of them, at least one
        blocked,  // none now
        ended,    // receive: the peer sends no more
        broken    // why() has the reason
    };
    struct Moved {
        size_t bytes = 0;
        State state = State::blocked;
    };
    virtual Moved receive(MutableBytes into) = 0;
    // As one piece, the second from where the first is full.
    virtual Moved receive_two(MutableBytes first, MutableBytes second) = 0;
    virtual Moved send(Bytes bytes) = 0;
    virtual std::string why() const = 0;

  protected:
    ~ByteWire() = default;
};

}  // namespace nexar::tcp
