// The frames on the wire (docs/protocol/wire.md), as they lie there, and the rules for a received one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/bytes.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

enum class FrameKind : uint8_t {
    message = 1,
    data = 2,
    grant = 3,
    ack = 4,
    nack = 5,
    ask = 6,
    entry = 7,  // of the control log (docs/protocol/control_log.md), as are the next two
    applied = 8,
    resume = 9,
};
constexpr size_t header_bytes_max = 256;      // of a frame of a later version
constexpr size_t list_bytes_max = 64 * 1024;  // of an ack, nack, ask or grant frame, after its length field
constexpr uint32_t grant_words_max = 256;     // of bitmap in one grant entry
constexpr uint32_t ask_last = 1;              // list flag: the last of the asks of this generation
constexpr uint32_t grant_more = 1;            // entry flag: more of this grant's bitmap follows
constexpr uint32_t grant_anew = 2;            // entry flag: what the bitmap does not name is to be sent again

struct FrameStart {
    uint64_t length;  // of all that follows this field
    uint8_t kind;
    uint8_t header_words;  // of 8 bytes: all fields before payload or entries; those that are not known are
                           // skipped
    uint16_t flags;
    uint32_t generation;
    uint64_t incarnation;
    uint64_t acks_seen;
};
static_assert(sizeof(FrameStart) == 32 && offsetof(FrameStart, acks_seen) == 24);

struct WireKey {
    uint64_t creator, incarnation, counter;
    uint64_t op;
    uint32_t epoch;
    uint32_t phase;
};
static_assert(sizeof(WireKey) == 40 && offsetof(WireKey, epoch) == 32);

struct DataFrame {
    FrameStart start;
    WireKey key;
    uint64_t plan_hash;
    uint64_t descriptor_hash;
    uint64_t bytes;  // of the whole transfer
    uint64_t offset;
    uint32_t chunk;
    uint32_t chunk_bytes;
    uint32_t payload_bytes;
    uint32_t zero;
};
static_assert(sizeof(DataFrame) == 120 && offsetof(DataFrame, plan_hash) == 72 &&
              offsetof(DataFrame, chunk) == 104);

struct EntryFrame {  // the message follows
    FrameStart start;
    uint64_t number;
    uint64_t applied;
};
static_assert(sizeof(EntryFrame) == 48);

struct AppliedFrame {
    FrameStart start;
    uint64_t applied;
};
static_assert(sizeof(AppliedFrame) == 40);

struct ResumeFrame {
    FrameStart start;
    uint64_t log_generation;
    uint64_t applied;
};
static_assert(sizeof(ResumeFrame) == 48);

struct RangeEntry {
    WireKey key;
    uint32_t first;
    uint32_t count;
};
static_assert(sizeof(RangeEntry) == 48);

struct ListFrame {
    FrameStart start;
    uint32_t count;
    uint16_t flags;
    uint16_t entry_bytes = sizeof(RangeEntry);  // of each entry's fields, as header_words
};
static_assert(sizeof(ListFrame) == 40);

struct GrantEntry {  // its bitmap follows
    WireKey key;
    uint64_t plan_hash;
    uint64_t descriptor_hash;
    uint64_t bytes;
    uint32_t chunk_bytes;
    uint32_t flags;
    uint32_t first_word;
    uint32_t words;
};
static_assert(sizeof(GrantEntry) == 80 && offsetof(GrantEntry, chunk_bytes) == 64);

constexpr size_t length_bytes = sizeof(uint64_t);
constexpr size_t ranges_per_frame =
    (list_bytes_max - (sizeof(ListFrame) - length_bytes)) / sizeof(RangeEntry);

// What this version has in front of payload or entries. 0: no kind of frame.
constexpr size_t header_bytes_of(FrameKind kind) {
    switch (kind) {
        case FrameKind::message:
            return sizeof(FrameStart);
        case FrameKind::data:
            return sizeof(DataFrame);
        case FrameKind::grant:
        case FrameKind::ack:
        case FrameKind::nack:
        case FrameKind::ask:
            return sizeof(ListFrame);
        case FrameKind::entry:
            return sizeof(EntryFrame);
        case FrameKind::applied:
            return sizeof(AppliedFrame);
        case FrameKind::resume:
            return sizeof(ResumeFrame);
    }
    return 0;
}
// As the frame states it.
inline size_t header_bytes_of(const FrameStart& start) {
    return size_t{start.header_words} * sizeof(uint64_t);
}

WireKey to_wire(const TransferKey& key);
TransferKey from_wire(const WireKey& key);

// Each returns the rule that was broken, or nullptr. Hostile bytes end here [W9].
const char* broken_rule(const FrameStart& start, Class cls, size_t message_bytes_max);
const char* broken_rule(const DataFrame& frame);
const char* broken_rule(const ListFrame& frame);                            // ack, nack, ask
const char* broken_rule(const GrantEntry& entry, size_t bytes_left_after);  // after its fields

template <class T>
T read_at(Bytes bytes, size_t offset) {
    T out;
    std::memcpy(&out, bytes.data() + offset, sizeof out);
    return out;
}
template <class T>
Bytes bytes_of_struct(const T& value) {
    return {reinterpret_cast<const std::byte*>(&value), sizeof value};
}

}  // namespace nexar::link
