// StreamWriter: docs/protocol/wire.md [W10] and "Priority".
#include "link/stream_writer.hpp"

namespace nexar::link {

void StreamWriter::put(StreamPeer& peer, Class cls, std::span<const Bytes> frame, size_t payload) {
    size_t bytes = 0;
    for (const Bytes part : frame) bytes += part.size();
    peer.channel->write(cls, frame);
    state_->count_sent(peer, cls, bytes, payload);
}

size_t StreamWriter::next_bytes(const StreamPeer& peer, Class cls) const {
    if (cls == Class::control) {
        if (const ControlLog::Entry* entry = next_entry(peer))
            return sizeof(EntryFrame) + entry->message.size();
        return peer.messages.empty() ? 0 : sizeof(FrameStart) + peer.messages.front().size();
    }
    const Send* s = peer.transfers->due.ready[index_of(cls)].front();
    return s == nullptr ? 0 : sizeof(DataFrame) + SendTable::next_payload(*s);
}

// Where the next frame of a class goes. While that stream has no room the whole class waits: it is a tenant's
// turn, and another one that went on meanwhile on a more urgent stream would take what is this one's [K23].
Class StreamWriter::next_stream(StreamPeer& peer, Class cls, size_t bytes) {
    if (cls == Class::control) return cls;
    const Send& s = *peer.transfers->due.ready[index_of(cls)].front();
    return peer.overtaking.stream_for(*peer.channel, stream_of(s.cls, s.priority), s.tenant->account, bytes);
}

// The highest class that can send, unless a lower one was passed over for too long.
bool StreamWriter::pick(StreamPeer& peer, Class& out) const {
    bool found = false;
    for (size_t c = 0; c < class_count; ++c) {
        const auto cls = static_cast<Class>(c);
        const size_t need = next_bytes(peer, cls);
        if (need == 0 || peer.channel->room(next_stream(peer, cls, need)) < need) continue;
        if (found && peer.passed_over[c] < state_->config.class_floor_bytes) continue;
        out = cls;
        if (found) return true;
        found = true;
    }
    return found;
}

void StreamWriter::pump(StreamPeer& peer) {
    Class cls;
    while (peer.channel != nullptr && pick(peer, cls)) {
        const size_t bytes = next_bytes(peer, cls);
        write_next(peer, cls);
        peer.passed_over[index_of(cls)] = 0;
        for (size_t lower = index_of(cls) + 1; lower < class_count; ++lower) {
            const bool waits = next_bytes(peer, static_cast<Class>(lower)) != 0;
            peer.passed_over[lower] = waits ? peer.passed_over[lower] + bytes : 0;
        }
    }
}

void StreamWriter::write_next(StreamPeer& peer, Class cls) {
    if (cls == Class::control && next_entry(peer) != nullptr) return write_entry(peer);
    if (cls == Class::control) {
        const std::vector<std::byte> message = std::move(peer.messages.front());
        peer.messages.pop_front();
        peer.message_bytes -= message.size();
        write_message(peer, message);
        return;
    }
    write_chunk(peer, *peer.transfers->due.ready[index_of(cls)].front());  // one chunk each, in turns
}

void StreamWriter::write_message(StreamPeer& peer, Bytes message) {
    const FrameStart start = state_->start_of(peer, FrameKind::message, sizeof(FrameStart) + message.size());
    const std::array<Bytes, 2> parts{bytes_of_struct(start), message};
    put(peer, Class::control, parts);
}

// Before the messages outside the log: a goodbye follows what was appended before it.
const ControlLog::Entry* StreamWriter::next_entry(const StreamPeer& peer) {
    return peer.resume_due ? nullptr : peer.log.next();
}

void StreamWriter::write_entries(StreamPeer& peer) {
    while (next_entry(peer) != nullptr &&
           peer.channel->room(Class::control) >= next_bytes(peer, Class::control))
        write_entry(peer);
}

void StreamWriter::write_entry(StreamPeer& peer) {
    const ControlLog::Entry& entry = *peer.log.next();
    EntryFrame f{};
    f.start = state_->start_of(peer, FrameKind::entry, sizeof f + entry.message.size());
    f.number = entry.number;
    f.applied = peer.log.take_ack();
    const std::array<Bytes, 2> parts{bytes_of_struct(f), Bytes(entry.message)};
    put(peer, Class::control, parts);
    peer.log.written();
}

void StreamWriter::write_resume(StreamPeer& peer) {
    if (!std::exchange(peer.resume_due, false)) return;
    const ControlLog::Resume resume = peer.log.resume();
    ResumeFrame f{};
    f.start = state_->start_of(peer, FrameKind::resume, sizeof f);
    f.log_generation = resume.generation;
    f.applied = resume.applied;
    const std::array<Bytes, 1> parts{bytes_of_struct(f)};
    put(peer, Class::control, parts);
}

// With what leaves anyhow, at the latest with a heartbeat; only many of them are worth a frame of their own.
void StreamWriter::write_applied(StreamPeer& peer) {
    const bool goes_along = peer.wrote_in_turn == state_->turn;
    if (!peer.log.resumed() || !peer.log.ack_due() || !(goes_along || peer.log.ack_urgent())) return;
    if (peer.channel->room(Class::control) < sizeof(AppliedFrame)) return;
    AppliedFrame f{};
    f.start = state_->start_of(peer, FrameKind::applied, sizeof f);
    f.applied = peer.log.take_ack();
    const std::array<Bytes, 1> parts{bytes_of_struct(f)};
    put(peer, Class::control, parts);
}

void StreamWriter::write_chunk(StreamPeer& peer, Send& s) {
    const uint32_t chunk = state_->table->sends.take(s);
    const uint32_t payload = s.payload_of(chunk);
    DataFrame f{};
    f.start = state_->start_of(peer, FrameKind::data, sizeof f + payload);
    f.key = to_wire(s.key);
    f.plan_hash = s.agreement.plan_hash;
    f.descriptor_hash = s.agreement.descriptor_hash;
    f.bytes = s.memory.bytes();
    f.offset = s.offset_of(chunk);
    f.chunk = chunk;
    f.chunk_bytes = s.chunk_bytes;
    f.payload_bytes = payload;
    parts_.clear();
    parts_.push_back(bytes_of_struct(f));
    s.memory.pieces(f.offset, payload,
                    [&](const std::byte* data, size_t n) { parts_.emplace_back(data, n); });
    const Account tenant = s.tenant->account;
    const Class wanted = stream_of(s.cls, s.priority);
    const Class stream = peer.overtaking.stream_for(*peer.channel, wanted, tenant, sizeof f + payload);
    peer.overtaking.wrote(*peer.channel, stream, tenant, sizeof f + payload);
    put(peer, stream, parts_, payload);
}

void StreamWriter::on_channel_lost(StreamPeer& peer) {
    peer.messages.clear();
    peer.message_bytes = 0;
    peer.passed_over = {};
    peer.overtaking = {};
}

}  // namespace nexar::link
