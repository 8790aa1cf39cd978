// What a Connection sends directly, past its queues: docs/protocol/tcp.md, "Records".
#include <algorithm>
#include <cstring>
#include <utility>

#include "tcp/connection.hpp"
#include "tcp/crc32c.hpp"
#include "tcp/parts_reader.hpp"

namespace nexar::tcp {

// What was queued before goes before it.
bool Connection::may_write_directly(size_t bytes) {
    if (!allows_direct_ || bytes < direct_bytes_min || bytes > whole_payload_max) return false;
    if (stream_->wants_writable()) return false;
    return send_queued(direct_bytes_per_turn) == Sent::all && !ended_;
}

void Connection::write_directly(Class cls, std::span<const Bytes> parts, size_t bytes) {
    const Stream::Step step =
        mode_ == Mode::tls ? encrypt_whole(cls, parts, bytes) : send_checked(cls, parts);
    written_[index_of(cls)] += bytes;
    direct_bytes_ += bytes;
    write_work_ += bytes;
    if (step == Stream::Step::failed) lost(stream_->why());
}

// One record, in TLS records of 2^14 bytes; only what is in smaller pieces is copied before it is encrypted.
Stream::Step Connection::encrypt_whole(Class cls, std::span<const Bytes> parts, size_t bytes) {
    const RecordHead head{static_cast<uint8_t>(cls), record_ends_write, 0, static_cast<uint32_t>(bytes)};
    auto& scratch = shared_->write_scratch;
    std::memcpy(scratch.data(), &head, sizeof head);
    size_t used = sizeof head;
    Stream::Step step = Stream::Step::done;
    const auto put = [&](Bytes record) {
        if (step != Stream::Step::failed) step = stream_->write(record);
    };
    for (Bytes part : parts) {
        while (!part.empty()) {
            const bool is_whole = used == 0 && part.size() >= tls_record_max;
            const Bytes piece = part.first(std::min(part.size(), tls_record_max - used));
            part = part.subspan(piece.size());
            if (is_whole) {
                put(piece);
                continue;
            }
            std::memcpy(scratch.data() + used, piece.data(), piece.size());
            used += piece.size();
            if (used == tls_record_max) put(Bytes(scratch).first(std::exchange(used, 0)));
        }
    }
    if (used > 0) put(Bytes(scratch).first(used));
    return step == Stream::Step::failed ? step : stream_->flush();
}

// Records, one after the other where the last one was, so that they stay in the cache. The checksum is of
// what is sent: the parts' owner may write to them meanwhile.
Stream::Step Connection::send_checked(Class cls, std::span<const Bytes> parts) {
    std::byte* const record = shared_->plain_scratch.data();
    PartsReader reader(parts);
    while (reader.left() > 0) {
        const size_t payload = std::min(reader.left(), plain_payload_sent);
        const uint8_t flags = payload == reader.left() ? record_ends_write : uint8_t{0};
        const RecordHead head{static_cast<uint8_t>(cls), flags, 0, static_cast<uint32_t>(payload)};
        std::memcpy(record, &head, sizeof head);
        uint32_t checksum = crc32c({record, sizeof head});
        size_t used = sizeof head;
        while (used < sizeof head + payload) {
            const Bytes piece = reader.next(sizeof head + payload - used);
            checksum = crc32c_copy(record + used, piece, checksum);
            used += piece.size();
        }
        std::memcpy(record + used, &checksum, sizeof checksum);
        used += sizeof checksum;
        if (stream_->write({record, used}) == Stream::Step::failed) return Stream::Step::failed;
    }
    return Stream::Step::done;
}

}  // namespace nexar::tcp
