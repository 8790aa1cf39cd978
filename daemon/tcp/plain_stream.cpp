// See plain_stream.hpp.
#include "tcp/plain_stream.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace nexar::tcp {

Stream::Step PlainStream::open() {
    if (dials_) {
        if (!std::exchange(opened_, true) && send_directly(magic) == Step::failed) return Step::failed;
        return Step::done;
    }
    if (opened_) return Step::done;
    const Step step = read(theirs_, theirs_bytes_);
    if (step != Step::done) return step;
    if (theirs_ != magic) return fail("neither TLS nor a nexar connection");
    opened_ = true;
    return Step::done;
}

Stream::Step PlainStream::read(MutableBytes into, size_t& filled) {
    while (filled < into.size()) {
        if (ahead_from_ < ahead_to_) {
            const size_t n = std::min(ahead_to_ - ahead_from_, into.size() - filled);
            std::memcpy(into.data() + filled, ahead_.data() + ahead_from_, n);
            ahead_from_ += n;
            filled += n;
            continue;
        }
        const MutableBytes rest = into.subspan(filled);
        const bool directly = rest.size() >= ahead_.size();
        const ByteWire::Moved moved = directly ? wire().receive_two(rest, ahead_) : wire().receive(ahead_);
        if (moved.state == ByteWire::State::blocked) return Step::blocked;
        if (moved.state == ByteWire::State::ended)
            return fail("the peer ended the connection without a close");
        if (moved.state == ByteWire::State::broken) return fail(wire().why());
        wire_bytes_ += moved.bytes;
        const size_t placed = directly ? std::min(moved.bytes, rest.size()) : 0;
        filled += placed;
        ahead_from_ = 0;
        ahead_to_ = moved.bytes - placed;
    }
    return Step::done;
}

// What is unsent is so because the wire took no more.
Stream::Step PlainStream::write(Bytes record) {
    if (!has_unsent()) return send_directly(record);
    append(record);
    return Step::blocked;
}

}  // namespace nexar::tcp
