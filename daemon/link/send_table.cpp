// SendTable: docs/protocol/wire.md [W5] [W6], docs/protocol/transfers.md.
#include "link/send_table.hpp"

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

const char* broken_range(const ChunkRange& range, uint32_t chunks) {
    if (range.count == 0) return "empty range of chunks";
    if (range.first >= chunks || range.count > chunks - range.first)
        return "range of chunks beyond the transfer";
    return nullptr;
}

}  // namespace

Send* SendTable::post(PeerTransfers& peer, SendSpec&& spec, uint64_t handle) {
    const size_t bytes = bytes_of(spec.memory);
    NEXAR_CHECK(spec.cls != Class::control);
    NEXAR_CHECK(spec.chunk_bytes > 0 && spec.chunk_bytes <= chunk_bytes_max && spec.chunk_bytes % 64 == 0);
    if (peer.dropped || state_->ops.is_gone(spec.key.op)) {
        state_->emit(MeshEvent::Kind::failed, handle, peer, spec.key);
        return nullptr;
    }
    if (bytes == 0) {
        state_->emit(MeshEvent::Kind::done, handle, peer, spec.key);
        return nullptr;
    }
    NEXAR_CHECK(chunks_of(bytes, spec.chunk_bytes) <= transfer_chunks_max);
    NEXAR_CHECK(peer.send_of.find(spec.key) == nullptr);  // [W1]

    Send& s = state_->send_rows.take();
    s.handle = handle;
    s.key = spec.key;
    s.agreement = spec.agreement;
    s.cls = spec.cls;
    s.priority = spec.priority;
    s.peer = &peer;
    s.tenant = &join_tenant(peer, {spec.account, spec.cls});
    s.op = &state_->ops.record_of(spec.key.op);
    s.memory.reset(std::move(spec.memory));
    s.chunk_bytes = spec.chunk_bytes;
    s.chunks = static_cast<uint32_t>(chunks_of(bytes, spec.chunk_bytes));
    s.finished = 0;
    s.mismatch_reported = s.granted = s.tried = false;
    s.eager = state_->is_eager(s.cls, bytes);
    s.remote = {};
    s.queued.reset(s.chunks, spec.ready);
    s.flying.reset(s.chunks);
    s.acked.reset(s.chunks);
    peer.send_of.insert(s.key, &s);
    peer.sends.push_back(s);
    s.op->sends.push_back(s);

    if (const auto grant = peer.early.take_grant(s.key)) {
        s.granted = accept_grant(s, *grant);
    } else if (peer.connected && !s.eager && (s.cls != Class::bulk || peer.early.grants_forgotten())) {
        peer.due.asks.push_back({s.key, 0, 0});
        state_->touch(peer);
    }
    update_ready(s);
    return &s;
}

void SendTable::mark_ready(Send& send, uint32_t chunk) {
    if (send.acked.test(chunk) || send.flying.test(chunk)) return;
    send.queued.set(chunk);
    update_ready(send);
}

void SendTable::fail(Send& send) {
    state_->emit(MeshEvent::Kind::failed, send.handle, *send.peer, send.key);
    release(send);
}

uint32_t SendTable::take(Send& send) {
    const uint32_t chunk = send.queued.first();
    send.queued.clear(chunk);
    send.flying.set(chunk);
    send.tried = true;
    send.peer->due.ready[index_of(send.cls)].took(send, send.payload_of(chunk));
    update_ready(send);
    return chunk;
}

bool SendTable::accept_grant(Send& send, const EarlyGrant& grant) {
    const bool same = grant.terms == send.terms();
    // Even sabotaged, a different number of chunks would only make us read beyond the memory.
    if (same || (state_->config.sabotage.skip_descriptor_check && grant.terms.same_shape(send.terms()))) {
        send.remote = grant.memory;
        return true;
    }
    state_->report_mismatch(send, grant.terms.agreement);  // [W4]
    return false;
}

void SendTable::on_grant(PeerTransfers& peer, const Grant& grant) {
    Send** at = peer.send_of.find(grant.key);
    if (at == nullptr) {
        // A bitmap without a send is that of a send which was withdrawn: only the grant itself is of use.
        if (!grant.more && !state_->ops.is_gone(grant.key.op))
            peer.early.keep_grant(grant.key, {grant.terms, grant.memory});
        return;
    }
    Send& s = **at;
    if (!accept_grant(s, {grant.terms, grant.memory})) {
        update_ready(s);
        return;
    }
    if (grant.anew) send_again(s);
    for (uint32_t i = 0; i < grant.words.size(); ++i) acknowledge(s, grant.first_word + i, grant.words[i]);
    if (!grant.more) s.granted = true;
    update_ready(s);
    complete_if_done(s);
}

const char* SendTable::on_ack(PeerTransfers& peer, const ChunkRange& range) {
    Send** at = peer.send_of.find(range.key);
    if (at == nullptr) return nullptr;  // withdrawn here
    Send& s = **at;
    if (const char* rule = broken_range(range, s.chunks)) return rule;
    for_words(range.first, range.count, [&](uint32_t w, uint64_t mask) { acknowledge(s, w, mask); });
    update_ready(s);
    complete_if_done(s);
    return nullptr;
}

const char* SendTable::on_nack(PeerTransfers& peer, const ChunkRange& range) {
    Send** at = peer.send_of.find(range.key);
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
    s.remote = {};
    update_ready(s);
    return nullptr;
}

// What was acknowledged went into memory that the receiver has given up. A chunk that was never ready stays
// so.
void SendTable::send_again(Send& s) {
    for (uint32_t w = 0; w < s.queued.words(); ++w) {
        s.queued.set_word(w, s.queued.word(w) | s.flying.word(w) | s.acked.word(w));
        s.flying.set_word(w, 0);
        s.acked.set_word(w, 0);
    }
    s.finished = 0;
}

void SendTable::acknowledge(Send& s, uint32_t word, uint64_t bits) {
    const uint32_t last = s.chunks - word * 64;
    if (last < 64) bits &= (uint64_t{1} << last) - 1;
    const uint64_t fresh = bits & ~s.acked.word(word);
    s.acked.set_word(word, s.acked.word(word) | fresh);
    s.flying.set_word(word, s.flying.word(word) & ~fresh);
    s.queued.set_word(word, s.queued.word(word) & ~fresh);
    s.finished += static_cast<uint32_t>(std::popcount(fresh));
}

void SendTable::complete_if_done(Send& send) {
    if (send.finished < send.chunks) return;
    state_->emit(MeshEvent::Kind::done, send.handle, *send.peer, send.key);
    release(send);
}

void SendTable::release(Send& send) {
    PeerTransfers& peer = *send.peer;
    peer.due.ready[index_of(send.cls)].remove(send);
    leave_tenant(peer, *send.tenant);
    peer.send_of.erase(send.key);
    peer.sends.erase(send);
    send.op->sends.erase(send);
    state_->ops.release_if_empty(*send.op);
    send.memory.clear();
    state_->send_rows.release(send);
}

TenantSends& SendTable::join_tenant(PeerTransfers& peer, const TenantKey& key) {
    TenantSends** known = peer.tenants.find(key);
    TenantSends& row = known != nullptr ? **known : state_->tenant_rows.take();
    if (known == nullptr) {
        row.account = key.account;
        row.cls = key.cls;
        row.priorities = {};
        peer.tenants.insert(key, &row);
    }
    ++row.posted;
    return row;
}

void SendTable::leave_tenant(PeerTransfers& peer, TenantSends& row) {
    if (--row.posted > 0) return;
    peer.tenants.erase({row.account, row.cls});
    state_->tenant_rows.release(row);
}

bool SendTable::may_send(const Send& send) {
    return send.peer->connected && (send.granted || send.eager) && !send.mismatch_reported;
}

void SendTable::update_ready(Send& send) {
    PeerTransfers& peer = *send.peer;
    SendTurns& turns = peer.due.ready[index_of(send.cls)];
    if (!may_send(send) || !send.queued.any()) {
        turns.remove(send);
        return;
    }
    if (send.ready.linked) return;
    turns.add(send);
    state_->touch(peer);
}

void SendTable::end_generation(PeerTransfers& peer) {
    for (Send* s = peer.sends.front(); s != nullptr; s = peer.sends.after(*s)) {
        for (uint32_t w = 0; w < s->flying.words(); ++w) {
            s->queued.set_word(w, s->queued.word(w) | s->flying.word(w));
            s->flying.set_word(w, 0);
        }
        s->granted = false;
        s->remote = {};
        if (s->tried) s->eager = false;
        peer.due.ready[index_of(s->cls)].remove(*s);
    }
    peer.early.drop_grants();
    peer.due.asks.clear();
    peer.due.asks_end = false;
}

void SendTable::begin_generation(PeerTransfers& peer) {
    for (Send* s = peer.sends.front(); s != nullptr; s = peer.sends.after(*s)) {
        if (s->tried || (s->cls != Class::bulk && !s->eager)) peer.due.asks.push_back({s->key, 0, 0});
        update_ready(*s);
    }
    peer.due.asks_end = true;
    state_->touch(peer);
}

void SendTable::check_invariants(const PeerTransfers& peer) const {
    size_t sends = 0;
    for (Send* s = peer.sends.front(); s != nullptr; s = peer.sends.after(*s), ++sends) {
        NEXAR_CHECK(s->peer == &peer && s->op == state_->ops.find(s->key.op));
        uint32_t acked = 0, flying = 0;
        for (uint32_t w = 0; w < s->queued.words(); ++w) {
            const uint64_t q = s->queued.word(w), f = s->flying.word(w), a = s->acked.word(w);
            NEXAR_CHECK((q & f) == 0 && (q & a) == 0 && (f & a) == 0);  // [W6]
            acked += static_cast<uint32_t>(std::popcount(a));
            flying += static_cast<uint32_t>(std::popcount(f));
        }
        NEXAR_CHECK(s->finished == acked && acked < s->chunks);
        NEXAR_CHECK(flying == 0 || (s->tried && peer.connected));
        NEXAR_CHECK(s->ready.linked == (may_send(*s) && s->queued.any()));
        NEXAR_CHECK(s->tenant->cls == s->cls && s->tenant->posted > 0);
    }
    for (const SendTurns& turns : peer.due.ready) turns.check_invariants();
    NEXAR_CHECK((sends == 0) == (peer.tenants.size() == 0));
    NEXAR_CHECK(sends == peer.send_of.size() && (sends == 0 || !peer.dropped));
    NEXAR_CHECK(peer.is_due || (peer.due.asks.empty() && !peer.due.asks_end));
}

}  // namespace nexar::link
