// StreamReader: a state machine per class stream (Stream::State).
#include "link/stream_reader.hpp"

#include <algorithm>

namespace nexar::link {

namespace {

// Fills stream.head up to `size`; true when it is.
bool fill_head(Stream& s, Bytes& bytes, size_t size) {
    const size_t n = std::min(size - s.head_bytes, bytes.size());
    std::memcpy(s.head.data() + s.head_bytes, bytes.data(), n);
    s.head_bytes += n;
    bytes = bytes.subspan(n);
    return s.head_bytes == size;
}

ChunkHeader header_of(const DataFrame& f) {
    return {from_wire(f.key), {{f.plan_hash, f.descriptor_hash}, f.bytes, f.chunk_bytes}, f.chunk};
}

}  // namespace

// It has arrived whole; the next one begins.
void StreamReader::end_frame(StreamPeer& peer, Class cls, Stream& s) {
    const uint64_t payload = s.state == Stream::State::payload ? s.chunk.payload() : 0;
    state_->count_received(peer, cls, read_at<FrameStart>(s.head, 0).length + length_bytes, payload);
    s.state = Stream::State::head;
    s.head_bytes = 0;
}

const char* StreamReader::feed(StreamPeer& peer, Class cls, Bytes bytes) {
    Stream& stream = peer.streams[index_of(cls)];
    while (!bytes.empty())
        if (const char* rule = step(peer, cls, stream, bytes)) return rule;
    return nullptr;
}

MutableBytes StreamReader::place(StreamPeer& peer, Class cls) {
    Stream& stream = peer.streams[index_of(cls)];
    return stream.state == Stream::State::payload ? placement_->place(stream) : MutableBytes();
}

void StreamReader::placed(StreamPeer& peer, Class cls, size_t bytes) {
    Stream& stream = peer.streams[index_of(cls)];
    NEXAR_CHECK(stream.state == Stream::State::payload && bytes <= stream.left);
    placement_->placed(stream, bytes);
    took(peer, cls, stream, bytes);
}

// So much of a payload is where it belongs.
void StreamReader::took(StreamPeer& peer, Class cls, Stream& s, size_t bytes) {
    s.left -= bytes;
    if (s.left > 0) return;
    placement_->end(peer, s);
    writer_->write_full_lists(peer);
    end_frame(peer, cls, s);
}

const char* StreamReader::step(StreamPeer& peer, Class cls, Stream& s, Bytes& bytes) {
    switch (s.state) {
        case Stream::State::head:
            return fill_head(s, bytes, sizeof(FrameStart)) ? on_start(peer, cls, s) : nullptr;
        case Stream::State::data_head: {
            if (!fill_head(s, bytes, header_bytes_of(read_at<FrameStart>(s.head, 0)))) return nullptr;
            const auto frame = read_at<DataFrame>(s.head, 0);
            if (const char* rule = broken_rule(frame)) return rule;
            s.chunk = header_of(frame);
            s.left = frame.payload_bytes;
            s.state = Stream::State::payload;
            placement_->begin(peer, s);
            return nullptr;
        }
        case Stream::State::payload: {
            const Bytes part = bytes.first(std::min<size_t>(bytes.size(), s.left));
            bytes = bytes.subspan(part.size());
            placement_->feed(s, part);
            took(peer, cls, s, part.size());
            return nullptr;
        }
        case Stream::State::body:
            return on_body_bytes(peer, cls, s, bytes);
        case Stream::State::skip: {
            const size_t n = std::min<size_t>(bytes.size(), s.left);
            bytes = bytes.subspan(n);
            s.left -= n;
            if (s.left == 0) end_frame(peer, cls, s);
            return nullptr;
        }
    }
    return nullptr;
}

const char* StreamReader::on_start(StreamPeer& peer, Class cls, Stream& s) {
    const auto start = read_at<FrameStart>(s.head, 0);
    if (const char* rule = broken_rule(start, cls, state_->config.message_bytes_max)) return rule;
    s.left = start.length - (sizeof(FrameStart) - length_bytes);
    s.body.clear();
    if (start.generation < peer.transfers->generation) {
        s.state = Stream::State::skip;
        if (s.left == 0) end_frame(peer, cls, s);
        return nullptr;
    }
    if (const char* rule = broken_identity(peer, start)) return rule;
    const auto kind = static_cast<FrameKind>(start.kind);
    s.state = kind == FrameKind::data ? Stream::State::data_head : Stream::State::body;
    if (s.left > 0) return nullptr;
    end_frame(peer, cls, s);
    return on_body(peer, s, {});  // only a message may be empty
}

const char* StreamReader::broken_identity(StreamPeer& peer, const FrameStart& start) {
    if (start.generation > peer.transfers->generation) return "frame of a later channel generation";
    if (!peer.incarnation_known) {
        peer.incarnation = start.incarnation;
        peer.incarnation_known = true;
    }
    if (start.incarnation != peer.incarnation) return "the sender's incarnation changed";
    if (start.incarnation == state_->config.incarnation && start.incarnation != 0)
        return "the sender's incarnation is our own";
    return state_->table->recvs.on_acks_seen(*peer.transfers, start.acks_seen);
}

const char* StreamReader::on_body_bytes(StreamPeer& peer, Class cls, Stream& s, Bytes& bytes) {
    const Bytes part = bytes.first(std::min<size_t>(bytes.size(), s.left));
    bytes = bytes.subspan(part.size());
    s.left -= part.size();
    if (s.left == 0 && s.body.empty()) {  // whole in one piece
        end_frame(peer, cls, s);
        return on_body(peer, s, part);
    }
    s.body.insert(s.body.end(), part.begin(), part.end());
    if (s.left > 0) return nullptr;
    end_frame(peer, cls, s);
    return on_body(peer, s, s.body);
}

const char* StreamReader::on_body(StreamPeer& peer, Stream& s, Bytes body) {
    const auto start = read_at<FrameStart>(s.head, 0);
    const Bytes content = body.subspan(header_bytes_of(start) - sizeof start);  // payload or entries [V3]
    if (static_cast<FrameKind>(start.kind) == FrameKind::message) {
        MeshEvent& e = state_->emit(MeshEvent::Kind::message, peer);
        e.bytes.assign(content.begin(), content.end());
        return nullptr;
    }
    if (static_cast<FrameKind>(start.kind) >= FrameKind::entry) {
        const char* rule = on_log_frame(peer, start, body, content);
        peer.log_broken = rule != nullptr && state_->config.has_log;
        return rule;
    }
    ListFrame frame{start, read_at<uint32_t>(body, 0), read_at<uint16_t>(body, sizeof(uint32_t)),
                    read_at<uint16_t>(body, sizeof(uint32_t) + sizeof(uint16_t))};
    if (const char* rule = broken_rule(frame)) return rule;
    const Bytes entries = content;
    return static_cast<FrameKind>(start.kind) == FrameKind::grant ? on_grants(peer, frame, entries)
                                                                  : on_list(peer, frame, entries);
}

const char* StreamReader::on_applied(StreamPeer& peer, uint64_t number) {
    const char* rule = peer.log.on_applied(number);
    state_->report_room(peer);
    return rule;
}

// docs/protocol/control_log.md, "Frames".
const char* StreamReader::on_log_frame(StreamPeer& peer, const FrameStart& start, Bytes body, Bytes message) {
    if (!state_->config.has_log) return "a control log's frame on a connection that carries none";
    const auto first = read_at<uint64_t>(body, 0);
    if (static_cast<FrameKind>(start.kind) == FrameKind::applied) return on_applied(peer, first);
    const auto applied = read_at<uint64_t>(body, sizeof(uint64_t));
    if (static_cast<FrameKind>(start.kind) == FrameKind::resume) {
        bool discarded = false;
        const char* rule = peer.log.on_resume({first, applied}, discarded);
        if (discarded) state_->log_discarded(peer, "the peer began the control log anew", true);
        state_->report_room(peer);
        state_->touch(peer);
        return rule;
    }
    if (const char* rule = on_applied(peer, applied)) return rule;
    const ControlLog::Arrival arrival = peer.log.on_entry(first);
    if (!arrival.is_new) return arrival.rule;
    MeshEvent& e = state_->emit(MeshEvent::Kind::message, peer);
    e.bytes.assign(message.begin(), message.end());
    e.logged = true;
    return nullptr;
}

const char* StreamReader::on_list(StreamPeer& peer, const ListFrame& frame, Bytes entries) {
    const auto kind = static_cast<FrameKind>(frame.start.kind);
    TransferTable& table = *state_->table;
    for (uint32_t i = 0; i < frame.count; ++i) {
        const auto entry = read_at<RangeEntry>(entries, size_t{i} * frame.entry_bytes);
        const ChunkRange range{from_wire(entry.key), entry.first, entry.count};
        const char* rule = nullptr;
        if (kind == FrameKind::ack)
            rule = table.sends.on_ack(*peer.transfers, range);
        else if (kind == FrameKind::nack)
            rule = table.sends.on_nack(*peer.transfers, range);
        else if (range.first != 0 || range.count != 0)
            rule = "an ask with a range";
        else
            table.recvs.on_ask(*peer.transfers, range.key);
        if (rule != nullptr) return rule;
        writer_->write_full_lists(peer);
    }
    if (kind == FrameKind::ack) ++peer.acks_processed;
    if (kind == FrameKind::ask && (frame.flags & ask_last) != 0) table.recvs.on_asks_ended(*peer.transfers);
    return nullptr;
}

const char* StreamReader::on_grants(StreamPeer& peer, const ListFrame& frame, Bytes entries) {
    for (uint32_t i = 0; i < frame.count; ++i) {
        if (entries.size() < frame.entry_bytes) return "grant beyond its frame";
        const auto entry = read_at<GrantEntry>(entries, 0);
        entries = entries.subspan(frame.entry_bytes);
        if (const char* rule = broken_rule(entry, entries.size())) return rule;
        words_.resize(entry.words);
        const size_t word_bytes = entry.words * sizeof(uint64_t);
        if (word_bytes > 0) std::memcpy(words_.data(), entries.data(), word_bytes);
        entries = entries.subspan(word_bytes);
        state_->table->sends.on_grant(
            *peer.transfers,
            {.key = from_wire(entry.key),
             .terms = {{entry.plan_hash, entry.descriptor_hash}, entry.bytes, entry.chunk_bytes},
             .memory = {},
             .more = (entry.flags & grant_more) != 0,
             .anew = (entry.flags & grant_anew) != 0,
             .first_word = entry.first_word,
             .words = words_});
    }
    return entries.empty() ? nullptr : "bytes behind the last grant";
}

}  // namespace nexar::link
