// Sending: docs/protocol/wire.md [W5] [W6] [W10] and "Priority".
#include "link/sending.hpp"

#include <array>
#include <bit>

namespace nexar::link {

namespace {

// f(word, mask) for each word that [first, first + count) touches.
template <class F>
void for_words(uint32_t first, uint32_t count, F&& f) {
    const uint32_t end = first + count;
    for (uint32_t w = first / 64; w * 64 < end; ++w) {
        uint64_t mask = ~uint64_t{0};
        if (w == first / 64) mask &= ~uint64_t{0} << (first % 64);
        if (end - w * 64 < 64) mask &= (uint64_t{1} << (end - w * 64)) - 1;
        f(w, mask);
    }
}

size_t index_of(Class cls) {
    return static_cast<size_t>(cls);
}

const char* broken_range(const RangeEntry& range, uint32_t chunks) {
    if (range.count == 0) return "empty range of chunks";
    if (range.first >= chunks || range.count > chunks - range.first)
        return "range of chunks beyond the transfer";
    return nullptr;
}

}  // namespace

Send* Sending::post(SendSpec&& spec, uint64_t handle) {
    Peer& peer = shared_->peer(spec.to);
    const size_t bytes = bytes_of(spec.memory);
    NEXAR_CHECK(spec.cls != Class::control);
    NEXAR_CHECK(spec.chunk_bytes > 0 && spec.chunk_bytes <= chunk_bytes_max && spec.chunk_bytes % 64 == 0);
    if (peer.dropped || shared_->is_gone(spec.key.op)) {
        shared_->emit(MeshEvent::Kind::failed, handle, peer, spec.key);
        return nullptr;
    }
    if (bytes == 0) {
        shared_->emit(MeshEvent::Kind::done, handle, peer, spec.key);
        return nullptr;
    }
    NEXAR_CHECK(chunks_of(bytes, spec.chunk_bytes) <= transfer_chunks_max);
    NEXAR_CHECK(peer.send_of.find(spec.key) == nullptr);  // [W1]

    Send& s = shared_->sends.take();
    s.handle = handle;
    s.key = spec.key;
    s.agreement = spec.agreement;
    s.cls = spec.cls;
    s.peer = &peer;
    s.op = &shared_->op_record(spec.key.op);
    s.memory.reset(std::move(spec.memory));
    s.chunk_bytes = spec.chunk_bytes;
    s.chunks = static_cast<uint32_t>(chunks_of(bytes, spec.chunk_bytes));
    s.finished = 0;
    s.mismatch_told = s.granted = s.tried = false;
    s.eager = shared_->is_eager(s.cls, bytes);
    s.queued.reset(s.chunks, spec.ready);
    s.flying.reset(s.chunks);
    s.acked.reset(s.chunks);
    peer.send_of.insert(s.key, &s);
    peer.sends.push_back(s);
    s.op->sends.push_back(s);

    if (const auto grant = peer.early.take_grant(s.key)) {
        s.granted = accept_grant(s, *grant);
    } else if (peer.channel != nullptr && !s.eager &&
               (s.cls != Class::bulk || peer.early.grants_forgotten())) {
        peer.asks.push_back({to_wire(s.key), 0, 0});
        shared_->touch(peer);
    }
    update_ready(s);
    return &s;
}

void Sending::mark_ready(Send& send, uint32_t chunk) {
    if (send.acked.test(chunk) || send.flying.test(chunk)) return;
    send.queued.set(chunk);
    update_ready(send);
}

void Sending::fail(Send& send) {
    shared_->emit(MeshEvent::Kind::failed, send.handle, *send.peer, send.key);
    release(send);
}

bool Sending::accept_grant(Send& send, const GrantEntry& entry) {
    const Agreement theirs{entry.plan_hash, entry.descriptor_hash};
    const bool same = theirs == send.agreement && entry.bytes == send.memory.bytes() &&
                      entry.chunk_bytes == send.chunk_bytes;
    if (same) return true;
    // Even sabotaged, a different number of chunks would only make us read beyond the memory.
    const bool same_shape = entry.bytes == send.memory.bytes() && entry.chunk_bytes == send.chunk_bytes;
    if (shared_->config.sabotage.skip_descriptor_check && same_shape) return true;
    shared_->tell_mismatch(send, theirs);  // [W4]
    return false;
}

void Sending::on_grant(Peer& peer, const GrantEntry& entry, Bytes words) {
    const TransferKey key = from_wire(entry.key);
    Send** at = peer.send_of.find(key);
    if (at == nullptr) {
        // A bitmap without a send is that of a send which was withdrawn: only the grant itself is of use.
        if ((entry.flags & grant_more) == 0 && !shared_->is_gone(key.op)) peer.early.keep_grant(key, entry);
        return;
    }
    Send& s = **at;
    if (!accept_grant(s, entry)) {
        update_ready(s);
        return;
    }
    if ((entry.flags & grant_anew) != 0) send_again(s);
    for (uint32_t i = 0; i < entry.words; ++i)
        acknowledge(s, entry.first_word + i, read_at<uint64_t>(words, i * sizeof(uint64_t)));
    if ((entry.flags & grant_more) == 0) s.granted = true;
    update_ready(s);
    complete_if_done(s);
}

const char* Sending::on_ack(Peer& peer, const RangeEntry& range) {
    Send** at = peer.send_of.find(from_wire(range.key));
    if (at == nullptr) return nullptr;  // withdrawn here
    Send& s = **at;
    if (const char* rule = broken_range(range, s.chunks)) return rule;
    for_words(range.first, range.count, [&](uint32_t w, uint64_t mask) { acknowledge(s, w, mask); });
    update_ready(s);
    complete_if_done(s);
    return nullptr;
}

const char* Sending::on_nack(Peer& peer, const RangeEntry& range) {
    Send** at = peer.send_of.find(from_wire(range.key));
    if (at == nullptr) return nullptr;
    Send& s = **at;
    if (const char* rule = broken_range(range, s.chunks)) return rule;
    ++peer.stats.nacks_received;
    for_words(range.first, range.count, [&](uint32_t w, uint64_t mask) {
        const uint64_t back = s.flying.word(w) & mask;
        s.flying.set_word(w, s.flying.word(w) & ~back);
        s.queued.set_word(w, s.queued.word(w) | back);
    });
    // The receiver remembers that it refused, and grants when it has a home: so refusals cannot go round in
    // circles.
    s.eager = s.granted = false;
    update_ready(s);
    return nullptr;
}

// What was acknowledged went into memory that the receiver has given up. A chunk that was never ready stays
// so.
void Sending::send_again(Send& s) {
    for (uint32_t w = 0; w < s.queued.words(); ++w) {
        s.queued.set_word(w, s.queued.word(w) | s.flying.word(w) | s.acked.word(w));
        s.flying.set_word(w, 0);
        s.acked.set_word(w, 0);
    }
    s.finished = 0;
}

void Sending::acknowledge(Send& s, uint32_t word, uint64_t bits) {
    const uint32_t last = s.chunks - word * 64;
    if (last < 64) bits &= (uint64_t{1} << last) - 1;
    const uint64_t fresh = bits & ~s.acked.word(word);
    s.acked.set_word(word, s.acked.word(word) | fresh);
    s.flying.set_word(word, s.flying.word(word) & ~fresh);
    s.queued.set_word(word, s.queued.word(word) & ~fresh);
    s.finished += static_cast<uint32_t>(std::popcount(fresh));
}

void Sending::complete_if_done(Send& send) {
    if (send.finished < send.chunks) return;
    shared_->emit(MeshEvent::Kind::done, send.handle, *send.peer, send.key);
    release(send);
}

void Sending::release(Send& send) {
    Peer& peer = *send.peer;
    peer.ready[index_of(send.cls)].erase(send);
    peer.send_of.erase(send.key);
    peer.sends.erase(send);
    send.op->sends.erase(send);
    shared_->release_if_empty(*send.op);
    send.memory.clear();
    shared_->sends.release(send);
}

void Sending::update_ready(Send& send) {
    Peer& peer = *send.peer;
    auto& list = peer.ready[index_of(send.cls)];
    const bool may = peer.channel != nullptr && (send.granted || send.eager) && !send.mismatch_told;
    if (!may || !send.queued.any()) {
        list.erase(send);
        return;
    }
    if (send.ready.linked) return;
    list.push_back(send);
    shared_->touch(peer);
}

void Sending::on_channel_lost(Peer& peer) {
    for (Send* s = peer.sends.front(); s != nullptr; s = peer.sends.after(*s)) {
        for (uint32_t w = 0; w < s->flying.words(); ++w) {
            s->queued.set_word(w, s->queued.word(w) | s->flying.word(w));
            s->flying.set_word(w, 0);
        }
        s->granted = false;
        if (s->tried) s->eager = false;
        peer.ready[index_of(s->cls)].erase(*s);
    }
    peer.early.drop_grants();
    peer.asks.clear();
    peer.messages.clear();
    peer.message_bytes = 0;
    peer.passed_over = {};
    peer.asks_end_due = false;
}

void Sending::on_channel(Peer& peer) {
    for (Send* s = peer.sends.front(); s != nullptr; s = peer.sends.after(*s)) {
        if (s->tried || (s->cls != Class::bulk && !s->eager)) peer.asks.push_back({to_wire(s->key), 0, 0});
        update_ready(*s);
    }
    peer.asks_end_due = true;
    shared_->touch(peer);
}

size_t Sending::next_bytes(const Peer& peer, Class cls) const {
    if (cls == Class::control) {
        if (const ControlLog::Entry* entry = next_entry(peer))
            return sizeof(EntryFrame) + entry->message.size();
        return peer.messages.empty() ? 0 : sizeof(FrameStart) + peer.messages.front().size();
    }
    const Send* s = peer.ready[index_of(cls)].front();
    if (s == nullptr) return 0;
    return sizeof(DataFrame) + bytes_of_chunk(s->memory.bytes(), s->chunk_bytes, s->queued.first());
}

// The highest class that can send, unless a lower one was passed over for too long.
bool Sending::pick(Peer& peer, Class& out) const {
    bool found = false;
    for (size_t c = 0; c < class_count; ++c) {
        const auto cls = static_cast<Class>(c);
        const size_t need = next_bytes(peer, cls);
        if (need == 0 || peer.channel->room(cls) < need) continue;
        if (found && peer.passed_over[c] < shared_->config.class_floor_bytes) continue;
        out = cls;
        if (found) return true;
        found = true;
    }
    return found;
}

void Sending::pump(Peer& peer) {
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

void Sending::write_next(Peer& peer, Class cls) {
    if (cls == Class::control && next_entry(peer) != nullptr) return write_entry(peer);
    if (cls == Class::control) {
        const std::vector<std::byte> message = std::move(peer.messages.front());
        peer.messages.pop_front();
        peer.message_bytes -= message.size();
        write_message(peer, message);
        return;
    }
    // One chunk each, in turns.
    Send& s = *peer.ready[index_of(cls)].front();
    peer.ready[index_of(cls)].erase(s);
    write_chunk(peer, s);
    update_ready(s);
}

void Sending::write_message(Peer& peer, Bytes message) {
    const FrameStart start = shared_->start_of(peer, FrameKind::message, sizeof(FrameStart) + message.size());
    const std::array<Bytes, 2> parts{bytes_of_struct(start), message};
    peer.channel->write(Class::control, parts);
}

// Before the messages outside the log: a goodbye follows what was appended before it.
const ControlLog::Entry* Sending::next_entry(const Peer& peer) {
    return peer.resume_due ? nullptr : peer.log.next();
}

void Sending::write_entries(Peer& peer) {
    while (next_entry(peer) != nullptr &&
           peer.channel->room(Class::control) >= next_bytes(peer, Class::control))
        write_entry(peer);
}

void Sending::write_entry(Peer& peer) {
    const ControlLog::Entry& entry = *peer.log.next();
    EntryFrame f{};
    f.start = shared_->start_of(peer, FrameKind::entry, sizeof f + entry.message.size());
    f.number = entry.number;
    f.applied = peer.log.take_ack();
    const std::array<Bytes, 2> parts{bytes_of_struct(f), Bytes(entry.message)};
    peer.channel->write(Class::control, parts);
    peer.log.written();
}

void Sending::write_chunk(Peer& peer, Send& s) {
    const uint32_t chunk = s.queued.first();
    const uint32_t payload = bytes_of_chunk(s.memory.bytes(), s.chunk_bytes, chunk);
    DataFrame f{};
    f.start = shared_->start_of(peer, FrameKind::data, sizeof f + payload);
    f.key = to_wire(s.key);
    f.plan_hash = s.agreement.plan_hash;
    f.descriptor_hash = s.agreement.descriptor_hash;
    f.bytes = s.memory.bytes();
    f.offset = uint64_t{chunk} * s.chunk_bytes;
    f.chunk = chunk;
    f.chunk_bytes = s.chunk_bytes;
    f.payload_bytes = payload;
    parts_.clear();
    parts_.push_back(bytes_of_struct(f));
    s.memory.pieces(f.offset, payload,
                    [&](const std::byte* data, size_t n) { parts_.emplace_back(data, n); });
    peer.channel->write(s.cls, parts_);
    s.queued.clear(chunk);
    s.flying.set(chunk);
    s.tried = true;
    peer.stats.bytes_sent += payload;
}

}  // namespace nexar::link
