// Channel: a connection to one peer for the link: four ordered byte streams, one per class, in each
// direction (connections/channels makes one of a carrier's connection). A channel has a generation. When it
// breaks, each stream is lost from some byte on, and a channel with a higher generation replaces it.
#pragma once

#include <span>

#include "core/bytes.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

constexpr size_t frame_bytes_max = 120 + chunk_bytes_max;  // a whole data frame; messages may be longer

class Channel {
  public:
    // Bytes that write() accepts now for this class within the class's send buffer. An empty buffer has room
    // for at least frame_bytes_max: a frame is written whole, or not at all [W10].
    virtual size_t room(Class cls) const = 0;
    // Copies all parts. Requires: at most room() bytes, except for grants, acks and nacks in control, which
    // are never refused because the peer's sends bound them. The channel closes a peer that sends and does
    // not read, at a limit on the control backlog.
    virtual void write(Class cls, std::span<const Bytes> parts) = 0;
    // Bytes that were written and are not acknowledged.
    virtual size_t held(Class cls) const = 0;

  protected:
    ~Channel() = default;
};

}  // namespace nexar::link
