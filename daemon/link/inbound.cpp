// Inbound: a state machine per class stream (Stream::State).
#include "link/inbound.hpp"

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

void next_frame(Stream& s) {
    s.state = Stream::State::head;
    s.head_bytes = 0;
}

}  // namespace

const char* Inbound::feed(Peer& peer, Class cls, Bytes bytes) {
    Stream& stream = peer.streams[static_cast<size_t>(cls)];
    while (!bytes.empty())
        if (const char* rule = step(peer, cls, stream, bytes)) return rule;
    return nullptr;
}

const char* Inbound::step(Peer& peer, Class cls, Stream& s, Bytes& bytes) {
    switch (s.state) {
        case Stream::State::head:
            return fill_head(s, bytes, sizeof(FrameStart)) ? on_start(peer, cls, s) : nullptr;
        case Stream::State::data_head:
            if (!fill_head(s, bytes, header_bytes_of(read_at<FrameStart>(s.head, 0)))) return nullptr;
            s.frame = read_at<DataFrame>(s.head, 0);
            if (const char* rule = broken_rule(s.frame)) return rule;
            s.left = s.frame.payload_bytes;
            s.state = Stream::State::payload;
            receiving_->begin(peer, s);
            return nullptr;
        case Stream::State::payload: {
            const Bytes part = bytes.first(std::min<size_t>(bytes.size(), s.left));
            bytes = bytes.subspan(part.size());
            s.left -= part.size();
            receiving_->feed(peer, s, part);
            if (s.left > 0) return nullptr;
            receiving_->end(peer, s);
            next_frame(s);
            return nullptr;
        }
        case Stream::State::body:
            return on_body_bytes(peer, s, bytes);
        case Stream::State::skip: {
            const size_t n = std::min<size_t>(bytes.size(), s.left);
            bytes = bytes.subspan(n);
            s.left -= n;
            if (s.left == 0) next_frame(s);
            return nullptr;
        }
    }
    return nullptr;
}

const char* Inbound::on_start(Peer& peer, Class cls, Stream& s) {
    const auto start = read_at<FrameStart>(s.head, 0);
    if (const char* rule = broken_rule(start, cls, shared_->config.message_bytes_max)) return rule;
    s.left = start.length - (sizeof(FrameStart) - length_bytes);
    s.body.clear();
    if (start.generation < peer.generation) {
        s.state = Stream::State::skip;
        if (s.left == 0) next_frame(s);
        return nullptr;
    }
    if (const char* rule = broken_identity(peer, start)) return rule;
    peer.tombstones.confirm(peer.generation, start.acks_seen);
    const auto kind = static_cast<FrameKind>(start.kind);
    s.state = kind == FrameKind::data ? Stream::State::data_head : Stream::State::body;
    if (s.left > 0) return nullptr;
    next_frame(s);
    return on_body(peer, s, {});  // only a message may be empty
}

const char* Inbound::broken_identity(Peer& peer, const FrameStart& start) {
    if (start.generation > peer.generation) return "frame of a later channel generation";
    if (!peer.incarnation_known) {
        peer.incarnation = start.incarnation;
        peer.incarnation_known = true;
    }
    if (start.incarnation != peer.incarnation) return "the sender's incarnation changed";
    if (start.incarnation == shared_->config.incarnation && start.incarnation != 0)
        return "the sender's incarnation is our own";
    if (start.acks_seen > peer.acks_sent) return "more acks seen than were sent";
    return nullptr;
}

const char* Inbound::on_body_bytes(Peer& peer, Stream& s, Bytes& bytes) {
    const Bytes part = bytes.first(std::min<size_t>(bytes.size(), s.left));
    bytes = bytes.subspan(part.size());
    s.left -= part.size();
    if (s.left == 0 && s.body.empty()) {  // whole in one piece
        next_frame(s);
        return on_body(peer, s, part);
    }
    s.body.insert(s.body.end(), part.begin(), part.end());
    if (s.left > 0) return nullptr;
    next_frame(s);
    return on_body(peer, s, s.body);
}

const char* Inbound::on_body(Peer& peer, Stream& s, Bytes body) {
    const auto start = read_at<FrameStart>(s.head, 0);
    const Bytes content = body.subspan(header_bytes_of(start) - sizeof start);  // payload or entries [V3]
    if (static_cast<FrameKind>(start.kind) == FrameKind::message) {
        MeshEvent& e = shared_->events.emplace_back();
        e.kind = MeshEvent::Kind::message;
        e.peer = peer.index;
        e.bytes.assign(content.begin(), content.end());
        return nullptr;
    }
    if (static_cast<FrameKind>(start.kind) >= FrameKind::entry) {
        const char* rule = on_log_frame(peer, start, body, content);
        peer.log_broken = rule != nullptr && shared_->config.has_log;
        return rule;
    }
    ListFrame frame{start, read_at<uint32_t>(body, 0), read_at<uint16_t>(body, sizeof(uint32_t)),
                    read_at<uint16_t>(body, sizeof(uint32_t) + sizeof(uint16_t))};
    if (const char* rule = broken_rule(frame)) return rule;
    const Bytes entries = content;
    return static_cast<FrameKind>(start.kind) == FrameKind::grant ? on_grants(peer, frame, entries)
                                                                  : on_list(peer, frame, entries);
}

const char* Inbound::on_applied(Peer& peer, uint64_t number) {
    const char* rule = peer.log.on_applied(number);
    shared_->report_room(peer);
    return rule;
}

// docs/protocol/control_log.md, "Frames".
const char* Inbound::on_log_frame(Peer& peer, const FrameStart& start, Bytes body, Bytes message) {
    if (!shared_->config.has_log) return "a control log's frame on a connection that carries none";
    const auto first = read_at<uint64_t>(body, 0);
    if (static_cast<FrameKind>(start.kind) == FrameKind::applied) return on_applied(peer, first);
    const auto applied = read_at<uint64_t>(body, sizeof(uint64_t));
    if (static_cast<FrameKind>(start.kind) == FrameKind::resume) {
        bool discarded = false;
        const char* rule = peer.log.on_resume({first, applied}, discarded);
        if (discarded) shared_->log_discarded(peer, "the peer began the control log anew", true);
        shared_->report_room(peer);
        shared_->touch(peer);
        return rule;
    }
    if (const char* rule = on_applied(peer, applied)) return rule;
    const ControlLog::Arrival arrival = peer.log.on_entry(first);
    if (!arrival.is_new) return arrival.rule;
    MeshEvent& e = shared_->events.emplace_back();
    e.kind = MeshEvent::Kind::message;
    e.peer = peer.index;
    e.bytes.assign(message.begin(), message.end());
    e.logged = true;
    return nullptr;
}

const char* Inbound::on_list(Peer& peer, const ListFrame& frame, Bytes entries) {
    const auto kind = static_cast<FrameKind>(frame.start.kind);
    for (uint32_t i = 0; i < frame.count; ++i) {
        const auto range = read_at<RangeEntry>(entries, size_t{i} * frame.entry_bytes);
        const char* rule = nullptr;
        if (kind == FrameKind::ack)
            rule = sending_->on_ack(peer, range);
        else if (kind == FrameKind::nack)
            rule = sending_->on_nack(peer, range);
        else if (range.first != 0 || range.count != 0)
            rule = "an ask with a range";
        else
            receiving_->on_ask(peer, from_wire(range.key));
        if (rule != nullptr) return rule;
    }
    if (kind == FrameKind::ack) ++peer.acks_processed;
    if (kind == FrameKind::ask && (frame.flags & ask_last) != 0) receiving_->on_asks_ended(peer);
    return nullptr;
}

const char* Inbound::on_grants(Peer& peer, const ListFrame& frame, Bytes entries) {
    for (uint32_t i = 0; i < frame.count; ++i) {
        if (entries.size() < frame.entry_bytes) return "grant beyond its frame";
        const auto entry = read_at<GrantEntry>(entries, 0);
        entries = entries.subspan(frame.entry_bytes);
        if (const char* rule = broken_rule(entry, entries.size())) return rule;
        const Bytes words = entries.first(entry.words * sizeof(uint64_t));
        entries = entries.subspan(words.size());
        sending_->on_grant(peer, entry, words);
    }
    return entries.empty() ? nullptr : "bytes behind the last grant";
}

}  // namespace nexar::link
