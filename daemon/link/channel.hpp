// A dumb channel to one peer, as the link sees it: four ordered byte streams, one per class, in each direction.
// QUIC gives one (transport/), the simulator another. A channel has a generation; when it breaks, whatever was
// in it is lost from some byte on, and a new one with a higher generation takes its place.
#pragma once

#include <span>

#include "core/bytes.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

class Channel {
public:
    // Bytes that write() would take now for this class without going over the class's send buffer.
    virtual size_t room(Class cls) const = 0;
    // Takes all parts, copying them: the memory may change when this returns. The caller stays within room(),
    // except for control, which is never refused (its senders are bounded on their own).
    virtual void write(Class cls, std::span<const Bytes> parts) = 0;

protected:
    ~Channel() = default;
};

}  // namespace nexar::link
