// The rules of frames: docs/protocol/wire.md, "Streams and frames".
#include "link/frame.hpp"

namespace nexar::link {

WireKey to_wire(const TransferKey& key) {
    const OpKey& op = key.op;
    return {op.group.creator, op.group.incarnation, op.group.counter, op.op, op.epoch.value, key.phase};
}

TransferKey from_wire(const WireKey& key) {
    TransferKey out;
    out.op.group = GroupId{key.creator, key.incarnation, key.counter};
    out.op.epoch = GroupEpoch{key.epoch};
    out.op.op = key.op;
    out.phase = key.phase;
    return out;
}

namespace {

const char* broken_transfer(uint64_t bytes, uint32_t chunk_bytes) {
    if (bytes == 0) return "transfer bytes are 0";
    if (chunk_bytes == 0 || chunk_bytes > chunk_bytes_max || chunk_bytes % 64 != 0)
        return "chunk bytes are not a multiple of 64 in (0, 256 KiB]";
    if (chunks_of(bytes, chunk_bytes) > transfer_chunks_max) return "a transfer has more than 2^20 chunks";
    return nullptr;
}

}  // namespace

const char* broken_rule(const FrameStart& start, Class cls, size_t message_bytes_max) {
    const size_t known = header_bytes_of(static_cast<FrameKind>(start.kind));
    const size_t header = header_bytes_of(start);
    if (known == 0) return "unknown frame kind";
    if (start.flags != 0) return "frame flags are not 0";
    if (header < known) return "frame header shorter than its kind has";
    if (header > header_bytes_max) return "frame header over the size limit";
    if (start.length < header - length_bytes) return "frame shorter than its header";
    const uint64_t rest = start.length - (header - length_bytes);  // payload or entries
    switch (static_cast<FrameKind>(start.kind)) {
        case FrameKind::message:
            if (cls != Class::control && cls != Class::rpc) return "message on a data stream";
            return rest > message_bytes_max ? "message over the size limit" : nullptr;
        case FrameKind::data:
            if (cls == Class::control) return "data on the control stream";
            if (rest == 0) return "data frame without payload";
            return rest > chunk_bytes_max ? "data frame over the size limit" : nullptr;
        case FrameKind::grant:
        case FrameKind::ack:
        case FrameKind::nack:
        case FrameKind::ask:
            if (cls != Class::control) return "grant, ack, nack or ask outside the control stream";
            return start.length > list_bytes_max ? "list frame over the size limit" : nullptr;
        case FrameKind::entry:
            if (cls != Class::control) return "a control log's frame outside the control stream";
            if (rest == 0) return "entry without a message";
            return rest > message_bytes_max ? "message over the size limit" : nullptr;
        case FrameKind::applied:
        case FrameKind::resume:
            if (cls != Class::control) return "a control log's frame outside the control stream";
            return rest != 0 ? "a control log's frame of another length" : nullptr;
    }
    return "unknown frame kind";
}

const char* broken_rule(const DataFrame& frame) {
    if (const char* rule = broken_transfer(frame.bytes, frame.chunk_bytes)) return rule;
    if (frame.zero != 0) return "reserved field of a data header is not 0";
    if (frame.chunk >= chunks_of(frame.bytes, frame.chunk_bytes)) return "chunk number beyond the transfer";
    if (frame.offset != uint64_t{frame.chunk} * frame.chunk_bytes) return "offset is not that of the chunk";
    if (frame.payload_bytes != bytes_of_chunk(frame.bytes, frame.chunk_bytes, frame.chunk))
        return "payload bytes are not those of the chunk";
    if (frame.start.length != header_bytes_of(frame.start) - length_bytes + frame.payload_bytes)
        return "frame length and payload bytes differ";
    return nullptr;
}

const char* broken_rule(const ListFrame& frame) {
    const auto kind = static_cast<FrameKind>(frame.start.kind);
    const uint32_t allowed = kind == FrameKind::ask ? ask_last : 0;
    if ((frame.flags & ~allowed) != 0) return "unknown list flag";
    const bool grants = kind == FrameKind::grant;
    if (frame.entry_bytes < (grants ? sizeof(GrantEntry) : sizeof(RangeEntry)))
        return "entries of a list shorter than their kind has";
    if (grants) return nullptr;  // their bitmaps have many lengths: judged one by one
    if (frame.start.length !=
        header_bytes_of(frame.start) - length_bytes + uint64_t{frame.count} * frame.entry_bytes)
        return "list length and count differ";
    return nullptr;
}

const char* broken_rule(const GrantEntry& entry, size_t bytes_left_after) {
    if (const char* rule = broken_transfer(entry.bytes, entry.chunk_bytes)) return rule;
    if ((entry.flags & ~(grant_more | grant_anew)) != 0) return "unknown grant flag";
    if ((entry.flags & grant_anew) != 0 && entry.first_word != 0) return "grant anew amid its bitmap";
    if (entry.words > grant_words_max) return "grant with too long a bitmap";
    if (entry.words * sizeof(uint64_t) > bytes_left_after) return "grant's bitmap beyond its frame";
    const uint64_t words = (chunks_of(entry.bytes, entry.chunk_bytes) + 63) / 64;
    if (uint64_t{entry.first_word} + entry.words > words) return "grant's bitmap beyond the transfer";
    return nullptr;
}

}  // namespace nexar::link
