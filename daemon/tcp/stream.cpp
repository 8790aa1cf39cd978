// See stream.hpp.
#include "tcp/stream.hpp"

namespace nexar::tcp {

Stream::Step Stream::flush() {
    blocked_ = false;
    while (sent_ < out_.size()) {
        const ByteWire::Moved moved = wire_->send(Bytes(out_).subspan(sent_));
        if (moved.state == ByteWire::State::blocked) {
            blocked_ = true;
            return Step::blocked;
        }
        if (moved.state != ByteWire::State::moved) return fail(wire_->why());
        sent_ += moved.bytes;
    }
    if (out_.capacity() > 2 * out_bytes_max) out_ = {};  // what a direct write left
    out_.clear();
    sent_ = 0;
    return Step::done;
}

Stream::Step Stream::send_directly(Bytes bytes) {
    blocked_ = false;
    while (!bytes.empty()) {
        const ByteWire::Moved moved = wire_->send(bytes);
        if (moved.state == ByteWire::State::blocked) {
            blocked_ = true;
            append(bytes);
            return Step::blocked;
        }
        if (moved.state != ByteWire::State::moved) return fail(wire_->why());
        bytes = bytes.subspan(moved.bytes);
    }
    return Step::done;
}

}  // namespace nexar::tcp
