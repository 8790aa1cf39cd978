// A dumb channel to one peer, as the link sees it: four ordered byte streams, one per class, in each
// direction. QUIC gives one (transport/), the simulator another. A channel has a generation; when it breaks,
// whatever was in it is lost from some byte on, and a new one with a higher generation takes its place.
#pragma once

#include <span>

#include "core/bytes.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

constexpr size_t frame_bytes_max = 120 + chunk_bytes_max;  // a whole data frame; messages may be longer

class Channel {
  public:
    // Bytes that write() would take now for this class without going over the class's send buffer. An empty
    // buffer has room for frame_bytes_max at least: a frame is written whole or not begun [W10].
    virtual size_t room(Class cls) const = 0;
    // Takes all parts, copying them: the memory may change when this returns. The caller stays within room(),
    // except for grants, acks and nacks in control, which are never refused: they are bounded by what the
    // peer sends. A peer that sends and does not read is the channel's to close, at a limit on its control
    // backlog.
    virtual void write(Class cls, std::span<const Bytes> parts) = 0;

  protected:
    ~Channel() = default;
};

}  // namespace nexar::link
