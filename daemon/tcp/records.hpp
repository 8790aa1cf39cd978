// Records: how the four classes of a connection share one byte stream (docs/protocol/tcp.md, "Records"). A
// record has a header of 8 bytes and up to payload_max bytes of one class; several make up what one write()
// took. So a record of a more urgent class waits for one record at most, and what was written at once, a
// chunk, is delivered at once.
#pragma once

#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/bytes.hpp"
#include "core/class.hpp"
#include "quic/config.hpp"

namespace nexar::tcp {

enum class RecordKind : uint8_t {  // below class_count: bytes of that class
    acknowledge = 8,               // four u64: the bytes of each class that have come
    close = 9,                     // u64 code, then text
    hello = 16,                    // the attach (attach.hpp)
    answer = 17,
    proof = 18,
};

struct RecordHead {
    uint8_t kind = 0;
    uint8_t flags = 0;
    uint16_t reserved = 0;
    uint32_t bytes = 0;  // of the payload
};
static_assert(sizeof(RecordHead) == 8);

constexpr uint8_t record_ends_write = 1;  // the last record of what one write() took
// Over TLS what is written at once, a chunk with its header, may be one record.
constexpr size_t whole_payload_max = 264 * 1024;
constexpr size_t tls_record_max = 16 * 1024;  // 2^14 bytes (RFC 8446 §5.1)
// Of what waits in a queue: one TLS record each, so that what is more urgent waits for no more.
constexpr size_t tls_payload_max = tls_record_max - sizeof(RecordHead);
constexpr size_t plain_payload_max = 64 * 1024;  // it is read whole before it is believed
constexpr size_t control_payload_max = 1024;     // of what is no class
constexpr size_t checksum_bytes = sizeof(uint32_t);
// What is sent without TLS, with header and checksum: the kernel makes one packet of it, which on its way to
// the device has at most 65,536 bytes with its headers, in whole segments, here of up to 9,000 bytes. Of a
// few bytes more it makes a second packet, as costly as the first.
constexpr size_t plain_record_max = 60 * 1024;
constexpr size_t plain_payload_sent = plain_record_max - sizeof(RecordHead) - checksum_bytes;
static_assert(plain_payload_sent <= plain_payload_max);

// None, or the rule that the header breaks. `payload_max`: of a class's record.
const char* broken_rule(const RecordHead& head, size_t payload_max);
constexpr bool is_class(uint8_t kind) {
    return kind < class_count;
}

// What waits to be sent of one class: records, ready but for their checksum.
class RecordQueue {
  public:
    struct Record {
        std::unique_ptr<std::byte[]> bytes;  // head and payload
        uint32_t used = 0;
        bool is_large = false;  // which of the pool's buffers it is
        RecordHead head() const {
            RecordHead h;
            std::memcpy(&h, bytes.get(), sizeof h);
            return h;
        }
        Bytes payload() const { return {bytes.get() + sizeof(RecordHead), used - sizeof(RecordHead)}; }
    };

    void append(uint8_t kind, std::span<const Bytes> parts, size_t payload_max, class RecordPool& pool);
    bool empty() const { return records_.empty(); }
    const Record& front() const { return records_.front(); }
    Record take();
    size_t bytes() const { return bytes_; }  // of payload
    void clear();

  private:
    static constexpr size_t small_write_max = 4096;
    bool extend(uint8_t kind, std::span<const Bytes> parts, size_t payload_max);

    std::deque<Record> records_;
    size_t bytes_ = 0;
};

// Buffers that all connections of a thread share. Bounded by what the connections' queues may hold.
class RecordPool {
  public:
    static constexpr size_t small_bytes = sizeof(RecordHead) + tls_payload_max + checksum_bytes;
    // Without TLS whole chunks arrive here before they are placed; longer writes arrive in parts.
    static constexpr size_t stage_bytes = 260 * 1024;
    static_assert(plain_payload_max <= stage_bytes);

    RecordQueue::Record take(size_t payload_max) {
        const bool large = payload_max > tls_payload_max;
        return {take_from(large ? large_ : small_, large ? plain_record_max : small_bytes), 0, large};
    }
    void give(RecordQueue::Record record) {
        give_to(record.is_large ? large_ : small_, std::move(record.bytes));
    }
    std::unique_ptr<std::byte[]> take_stage() { return take_from(stages_, stage_bytes); }
    void give_stage(std::unique_ptr<std::byte[]> stage) { give_to(stages_, std::move(stage)); }

  private:
    using Buffers = std::vector<std::unique_ptr<std::byte[]>>;
    static constexpr size_t kept_max = 256;
    static std::unique_ptr<std::byte[]> take_from(Buffers& from, size_t bytes);
    static void give_to(Buffers& to, std::unique_ptr<std::byte[]> buffer);
    Buffers small_, large_, stages_;
};

}  // namespace nexar::tcp
