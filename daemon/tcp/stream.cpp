// See stream.hpp.
#include "tcp/stream.hpp"

namespace nexar::tcp {

namespace {

constexpr size_t long_bytes = 8 * 1024;  // what is shorter comes alone: an acknowledgement, a handshake

}  // namespace

// A buffer is kept while it is in use only: there are as many streams as peers.
void Stream::append(Bytes bytes) {
    if (out_.empty() && bytes.size() >= long_bytes) out_.reserve(out_bytes_max);
    out_.insert(out_.end(), bytes.begin(), bytes.end());
}

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
    if (out_.capacity() > long_bytes) out_ = std::vector<std::byte>();  // = {} would keep the memory
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
