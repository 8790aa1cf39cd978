// RecvTable: docs/protocol/wire.md [W2] [W3] [W4] [W7] and "What happens", docs/protocol/transfers.md.
#include "link/recv_table.hpp"

#include <bit>

#include "reduce/reduce.hpp"

namespace nexar::link {

Recv* RecvTable::post(PeerTransfers& peer, RecvSpec&& spec, uint64_t handle, Send* forward,
                      EarlyChunks& early) {
    early.clear();
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
    NEXAR_CHECK(peer.recv_of.find(spec.key) == nullptr);  // [W1]
    if (peer.tombstones.find(spec.key) != nullptr) {
        // Another node chose the group's id, so a peer can provoke this: it is no bug here.
        state_->emit(MeshEvent::Kind::failed, handle, peer, spec.key);
        state_->events->back().text =
            "the number of the transfer was used before: its group has the id of an earlier one";
        return nullptr;
    }
    if (spec.reduce)
        for (const Extent& e : spec.memory) NEXAR_CHECK(e.bytes % reduce::size_of(spec.reduce->dtype) == 0);

    Recv& r = state_->recv_rows.take();
    r.handle = handle;
    r.key = spec.key;
    r.agreement = spec.agreement;
    r.cls = spec.cls;
    r.peer = &peer;
    r.op = &state_->ops.record_of(spec.key.op);
    r.memory.reset(std::move(spec.memory));
    r.chunk_bytes = spec.chunk_bytes;
    r.chunks = static_cast<uint32_t>(chunks_of(bytes, spec.chunk_bytes));
    r.finished = 0;
    r.mismatch_reported = r.needs_grant = r.grant_pending = false;
    r.anew = spec.anew;
    r.ack_may_wait = spec.ack_may_wait;
    r.applied.reset(r.chunks);
    r.reduce = spec.reduce;
    r.forward = forward != nullptr ? Weak<Send>(*forward) : Weak<Send>();
    r.ack_batch = 0;
    peer.recv_of.insert(r.key, &r);
    peer.recvs.push_back(r);
    r.op->recvs.push_back(r);

    r.needs_grant = r.anew || !state_->is_eager(r.cls, bytes) || peer.early.wants_forgotten();
    if (auto arrived = peer.early.take_recv(r.key)) {
        r.needs_grant |= arrived->wanted;
        early = std::move(arrived->chunks);
    }
    if (r.needs_grant) grant(r);  // if the early chunks complete it, no grant leaves
    return &r;
}

void RecvTable::fail(Recv& recv) {
    state_->emit(MeshEvent::Kind::failed, recv.handle, *recv.peer, recv.key);
    release(recv);
}

Arrival RecvTable::arrive(PeerTransfers& peer, const ChunkHeader& header, Recv*& recv) {
    if (Recv** at = peer.recv_of.find(header.key)) {
        Recv& r = **at;
        if (!agrees(r, header.terms)) return Arrival::drop;
        if (r.applied.test(header.chunk) && !state_->config.sabotage.no_deduplication) {
            ++peer.stats.chunks_duplicate;
            acknowledge(r, header.chunk);
            return Arrival::drop;
        }
        recv = &r;
        return Arrival::place;
    }
    if (const Tombstones::Stone* stone = peer.tombstones.find(header.key)) {
        ++peer.stats.chunks_duplicate;
        if (header.chunk < stone->chunks) acknowledge_again(peer, header.key, *stone, header.chunk, 1);
        return Arrival::drop;
    }
    // Neither ack nor nack: see wire.md, "Withdrawn".
    if (state_->ops.is_gone(header.key.op)) return Arrival::drop;
    if (peer.early.holds(header.key, header.chunk)) return Arrival::drop;  // acknowledged when applied
    if (peer.early.has_room(header.key, header.payload())) return Arrival::buffer;
    refuse(peer, header);
    return Arrival::drop;
}

Recv* RecvTable::keep(PeerTransfers& peer, const ChunkHeader& header, std::vector<std::byte>&& bytes) {
    // The receive may have been posted, or withdrawn, while the chunk arrived.
    if (Recv** posted = peer.recv_of.find(header.key))
        return agrees(**posted, header.terms) ? *posted : nullptr;
    if (state_->ops.is_gone(header.key.op) || peer.early.holds(header.key, header.chunk)) return nullptr;
    if (peer.early.has_room(header.key, header.payload()))
        peer.early.keep({header, std::move(bytes)});
    else
        refuse(peer, header);
    return nullptr;
}

bool RecvTable::agrees(Recv& recv, const Terms& theirs) {
    const Terms ours = recv.terms();
    const bool same_agreement =
        theirs.agreement == ours.agreement || state_->config.sabotage.skip_descriptor_check;
    if (theirs.same_shape(ours) && same_agreement) return true;
    state_->report_mismatch(recv, theirs.agreement);
    return false;
}

bool RecvTable::mark_applied(Recv& recv, uint32_t chunk) {
    ++recv.peer->stats.chunks_applied;
    if (!recv.applied.test(chunk)) ++recv.finished;
    recv.applied.set(chunk);
    acknowledge(recv, chunk);
    if (Send* forward = recv.forward.get()) sends_->mark_ready(*forward, chunk);
    if (recv.finished < recv.chunks) return true;
    complete(recv);
    return false;
}

void RecvTable::complete(Recv& recv) {
    PeerTransfers& peer = *recv.peer;
    if (recv.anew && recv.grant_pending) acknowledge_now(peer, {recv.key, 0, recv.chunks});
    peer.tombstones.add(recv.key, {recv.chunks, peer.generation, peer.batches_sent + 1});
    state_->emit(MeshEvent::Kind::done, recv.handle, peer, recv.key);
    release(recv);
}

void RecvTable::release(Recv& recv) {
    PeerTransfers& peer = *recv.peer;
    peer.recv_of.erase(recv.key);
    peer.recvs.erase(recv);
    recv.op->recvs.erase(recv);
    state_->ops.release_if_empty(*recv.op);
    recv.memory.clear();
    recv.forward = {};
    state_->recv_rows.release(recv);
}

void RecvTable::on_ask(PeerTransfers& peer, const TransferKey& key) {
    if (Recv** at = peer.recv_of.find(key)) {
        Recv& r = **at;
        r.needs_grant = true;
        if (!r.grant_pending) grant(r);
        return;
    }
    if (const Tombstones::Stone* stone = peer.tombstones.find(key)) {
        acknowledge_again(peer, key, *stone, 0, stone->chunks);
        return;
    }
    if (!state_->ops.is_gone(key.op)) peer.early.want(key);
}

const char* RecvTable::on_acks_seen(PeerTransfers& peer, uint64_t batches) {
    if (batches > peer.batches_sent) return "more acks seen than were sent";
    peer.tombstones.confirm(peer.generation, batches);
    return nullptr;
}

void RecvTable::refuse(PeerTransfers& peer, const ChunkHeader& header) {
    peer.early.want(header.key);
    ++peer.stats.nacks_sent;
    peer.due.nacks.push_back({header.key, header.chunk, 1});
    state_->touch(peer);
}

// Extends our newest range if this chunk follows it, so a transfer that arrives in order costs one range per
// turn.
void RecvTable::acknowledge(Recv& recv, uint32_t chunk) {
    PeerTransfers& peer = *recv.peer;
    if (!peer.connected) return;  // the sender will ask
    // Its grant will state it. An ack before it would be added to those of the retracted receive.
    if (recv.anew && recv.grant_pending) return;
    if (recv.ack_may_wait)
        peer.due.acked_bytes += recv.payload_of(chunk);
    else
        peer.due.ack_is_awaited = true;
    if (recv.ack_batch == peer.ack_batch) {
        ChunkRange& newest = peer.due.acks[recv.ack_at];
        if (newest.first + newest.count == chunk) {
            ++newest.count;
            return;
        }
    }
    recv.ack_batch = peer.ack_batch;
    recv.ack_at = peer.due.acks.size();
    acknowledge(peer, {recv.key, chunk, 1});
}

void RecvTable::acknowledge(PeerTransfers& peer, const ChunkRange& range) {
    peer.due.acks.push_back(range);
    state_->touch(peer);
}

void RecvTable::acknowledge_again(PeerTransfers& peer, const TransferKey& key, Tombstones::Stone stone,
                                  uint32_t first, uint32_t count) {
    stone.generation = peer.generation;
    stone.ack_batch = peer.batches_sent + 1;
    peer.tombstones.answered(key, stone);
    acknowledge_now(peer, {key, first, count});
}

void RecvTable::acknowledge_now(PeerTransfers& peer, const ChunkRange& range) {
    peer.due.ack_is_awaited = true;
    acknowledge(peer, range);
}

void RecvTable::acks_taken(PeerTransfers& peer) {
    peer.due.clear_acks();
    ++peer.batches_sent;
    ++peer.ack_batch;
}

void RecvTable::grant(Recv& recv) {
    PeerTransfers& peer = *recv.peer;
    if (!peer.connected || state_->config.sabotage.skip_grant) return;
    recv.grant_pending = true;
    peer.due.grants.emplace_back(recv);
    state_->touch(peer);
}

Grant RecvTable::take_grant(Recv& recv) {
    recv.grant_pending = false;
    ++recv.peer->stats.grants_sent;
    Grant out{.key = recv.key, .terms = recv.terms(), .memory = {}, .anew = recv.anew, .words = {}};
    const bool no_bitmap = recv.finished == 0 || state_->config.sabotage.no_deduplication;
    if (!no_bitmap) out.words = recv.applied.all_words();
    return out;
}

void RecvTable::end_generation(PeerTransfers& peer) {
    for (Recv* r = peer.recvs.front(); r != nullptr; r = peer.recvs.after(*r)) r->grant_pending = false;
    peer.due.clear_acks();
    peer.due.nacks.clear();
    peer.due.grants.clear();
    ++peer.ack_batch;
}

void RecvTable::begin_generation(PeerTransfers& peer) {
    peer.tombstones.new_generation();
    peer.batches_sent = 0;
    for (Recv* r = peer.recvs.front(); r != nullptr; r = peer.recvs.after(*r))
        if (r->needs_grant) grant(*r);
}

void RecvTable::check_invariants(const PeerTransfers& peer) const {
    size_t recvs = 0, pending = 0;
    for (Recv* r = peer.recvs.front(); r != nullptr; r = peer.recvs.after(*r), ++recvs) {
        NEXAR_CHECK(r->peer == &peer && r->op == state_->ops.find(r->key.op));
        uint32_t applied = 0;
        for (const uint64_t word : r->applied.all_words())
            applied += static_cast<uint32_t>(std::popcount(word));
        NEXAR_CHECK(r->finished == applied && applied < r->chunks);
        NEXAR_CHECK(!r->grant_pending || (peer.connected && r->needs_grant));
        pending += r->grant_pending ? 1 : 0;
        NEXAR_CHECK(r->ack_batch <= peer.ack_batch);
        if (r->ack_batch == peer.ack_batch)
            NEXAR_CHECK(r->ack_at < peer.due.acks.size() && peer.due.acks[r->ack_at].key == r->key);
    }
    NEXAR_CHECK(recvs == peer.recv_of.size() && (recvs == 0 || !peer.dropped));
    size_t due = 0;
    for (const Weak<Recv>& weak : peer.due.grants) {
        const Recv* r = weak.get();
        NEXAR_CHECK(r == nullptr || (r->peer == &peer && r->grant_pending));
        due += r != nullptr ? 1 : 0;
    }
    NEXAR_CHECK(due == pending);
    const bool has_lists = !peer.due.acks.empty() || !peer.due.nacks.empty() || !peer.due.grants.empty();
    NEXAR_CHECK(!has_lists || (peer.is_due && peer.connected));
}

}  // namespace nexar::link
