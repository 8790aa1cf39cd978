// See receiving.hpp; docs/protocol/wire.md [W2] [W3] [W4] [W7] and "What happens". lists.cpp writes the
// lists.
#include "link/receiving.hpp"

#include "reduce/reduce.hpp"

namespace nexar::link {

void Receiving::post(RecvSpec&& spec, uint64_t handle, Send* forward) {
    Peer& peer = shared_->peer(spec.from);
    const size_t bytes = bytes_of(spec.memory);
    NEXAR_CHECK(spec.cls != Class::control);
    NEXAR_CHECK(spec.chunk_bytes > 0 && spec.chunk_bytes <= chunk_bytes_max && spec.chunk_bytes % 64 == 0);
    if (peer.dropped || shared_->is_gone(spec.key.op)) {
        shared_->emit(MeshEvent::Kind::failed, handle, peer, spec.key);
        return;
    }
    if (bytes == 0) {
        shared_->emit(MeshEvent::Kind::done, handle, peer, spec.key);
        return;
    }
    NEXAR_CHECK(chunks_of(bytes, spec.chunk_bytes) <= transfer_chunks_max);
    NEXAR_CHECK(peer.recv_of.find(spec.key) == nullptr);  // [W1]
    if (peer.tombstones.find(spec.key) != nullptr) {
        // Another node chose the group's id, so a peer can provoke this: it is no bug here.
        shared_->emit(MeshEvent::Kind::failed, handle, peer, spec.key);
        shared_->events.back().text =
            "the number of the transfer was used before: its group has the id of an earlier one";
        return;
    }
    if (spec.reduce)
        for (const Extent& e : spec.memory) NEXAR_CHECK(e.bytes % reduce::size_of(spec.reduce->dtype) == 0);

    Recv& r = shared_->recvs.take();
    r.handle = handle;
    r.key = spec.key;
    r.agreement = spec.agreement;
    r.cls = spec.cls;
    r.peer = &peer;
    r.op = &shared_->op_record(spec.key.op);
    r.memory.reset(std::move(spec.memory));
    r.chunk_bytes = spec.chunk_bytes;
    r.chunks = static_cast<uint32_t>(chunks_of(bytes, spec.chunk_bytes));
    r.finished = 0;
    r.mismatch_told = r.needs_grant = r.grant_pending = false;
    r.anew = spec.anew;
    r.applied.reset(r.chunks);
    r.reduce = spec.reduce;
    r.forward = forward != nullptr ? Weak<Send>(*forward) : Weak<Send>();
    r.ack_batch = 0;
    peer.recv_of.insert(r.key, &r);
    peer.recvs.push_back(r);
    r.op->recvs.push_back(r);

    r.needs_grant = r.anew || !shared_->is_eager(r.cls, bytes) || peer.early.wants_forgotten();
    if (r.anew) grant(r);
    if (const auto early = peer.early.take_recv(r.key)) {
        r.needs_grant |= early->wanted;
        const Weak<Recv> alive(r);
        apply_early(r, *early);
        if (alive.get() == nullptr) return;
    }
    if (r.needs_grant && !r.grant_pending) grant(r);
}

void Receiving::apply_early(Recv& recv, const EarlyRecv& early) {
    for (const Stashed& s : early.chunks) {
        if (!agrees(recv, s.frame)) return;
        if (!apply_whole(recv, s.frame, s.bytes)) return;
    }
}

void Receiving::fail(Recv& recv) {
    shared_->emit(MeshEvent::Kind::failed, recv.handle, *recv.peer, recv.key);
    release(recv);
}

void Receiving::begin(Peer& peer, Stream& stream) {
    const DataFrame& f = stream.frame;
    const TransferKey key = from_wire(f.key);
    stream.sink = Stream::Sink::drop;
    stream.got = 0;
    peer.stats.bytes_received += f.payload_bytes;
    if (Recv** at = peer.recv_of.find(key)) {
        Recv& r = **at;
        if (!agrees(r, f)) return;
        if (r.applied.test(f.chunk) && !shared_->config.sabotage.no_deduplication) {
            ++peer.stats.chunks_duplicate;
            acknowledge(r, f.chunk);
            return;
        }
        stream.recv = Weak<Recv>(r);
        stream.sink = r.reduce ? Stream::Sink::stage : Stream::Sink::copy;
        return;
    }
    if (const Tombstones::Stone* stone = peer.tombstones.find(key)) {
        ++peer.stats.chunks_duplicate;
        if (f.chunk < stone->chunks) acknowledge_again(peer, key, *stone, f.chunk, 1);
        return;
    }
    if (shared_->is_gone(key.op)) return;        // neither ack nor nack: see wire.md, "Withdrawn"
    if (peer.early.holds(key, f.chunk)) return;  // it is acknowledged when it is applied
    if (!peer.early.has_room(key, f.payload_bytes)) {
        refuse(peer, f);
        return;
    }
    stream.sink = Stream::Sink::stash;
    stream.body.clear();
    stream.body.reserve(f.payload_bytes);  // at most eager_bytes_max
}

void Receiving::feed(Peer& peer, Stream& stream, Bytes bytes) {
    const DataFrame& f = stream.frame;
    const size_t at = stream.got;
    stream.got += static_cast<uint32_t>(bytes.size());
    if (stream.sink == Stream::Sink::stash) {
        stream.body.insert(stream.body.end(), bytes.begin(), bytes.end());
        return;
    }
    if (stream.sink == Stream::Sink::drop) return;
    Recv* r = stream.recv.get();
    if (r == nullptr) {  // withdrawn while this frame arrived [W7]
        stream.sink = Stream::Sink::drop;
        return;
    }
    if (stream.sink == Stream::Sink::copy) {
        r->memory.pieces(f.offset + at, bytes.size(), [&](std::byte* to, size_t n) {
            std::memcpy(to, bytes.data(), n);
            bytes = bytes.subspan(n);
        });
        return;
    }
    if (bytes.size() == f.payload_bytes) {  // the whole payload at once: it is not buffered
        apply_whole(*r, f, bytes);
        stream.sink = Stream::Sink::drop;
        return;
    }
    if (!stream.stage) stream.stage = shared_->take_stage();
    std::memcpy(stream.stage.get() + at, bytes.data(), bytes.size());
    (void)peer;
}

void Receiving::end(Peer& peer, Stream& stream) {
    const DataFrame& f = stream.frame;
    Recv* r = stream.recv.get();
    switch (stream.sink) {
        case Stream::Sink::drop:
            break;
        case Stream::Sink::copy:
            if (r != nullptr) mark_applied(*r, f.chunk);
            break;
        case Stream::Sink::stage:
            if (r != nullptr) apply_whole(*r, f, {stream.stage.get(), f.payload_bytes});
            break;
        case Stream::Sink::stash: {
            // The receive may have been posted, or withdrawn, while the chunk arrived.
            const TransferKey key = from_wire(f.key);
            Recv** posted = peer.recv_of.find(key);
            if (posted != nullptr) {
                if (agrees(**posted, f)) apply_whole(**posted, f, stream.body);
            } else if (shared_->is_gone(key.op) || peer.early.holds(key, f.chunk)) {
            } else if (peer.early.has_room(key, f.payload_bytes)) {
                peer.early.stash(key, {f, std::move(stream.body)});
            } else {
                refuse(peer, f);
            }
            break;
        }
    }
    shared_->give_stage(std::move(stream.stage));
    stream.recv = {};
    stream.sink = Stream::Sink::drop;
}

bool Receiving::agrees(Recv& recv, const DataFrame& f) {
    const Agreement theirs{f.plan_hash, f.descriptor_hash};
    const bool same_shape = f.bytes == recv.memory.bytes() && f.chunk_bytes == recv.chunk_bytes;
    if (same_shape && (theirs == recv.agreement || shared_->config.sabotage.skip_descriptor_check))
        return true;
    shared_->tell_mismatch(recv, theirs);  // [W4]
    return false;
}

bool Receiving::apply_whole(Recv& recv, const DataFrame& f, Bytes payload) {
    // Checked again: a hostile peer may have sent the same chunk on another class stream meanwhile.
    if (recv.applied.test(f.chunk) && !shared_->config.sabotage.no_deduplication) {
        acknowledge(recv, f.chunk);
        return true;
    }
    combine(recv, f.offset, payload);
    if (shared_->config.sabotage.apply_chunk_twice) combine(recv, f.offset, payload);
    return mark_applied(recv, f.chunk);
}

void Receiving::combine(Recv& recv, size_t offset, Bytes payload) {
    recv.memory.pieces(offset, payload.size(), [&](std::byte* to, size_t n) {
        if (recv.reduce)
            reduce::reduce_into(to, payload.data(), n / reduce::size_of(recv.reduce->dtype),
                                recv.reduce->dtype, recv.reduce->op);
        else
            std::memcpy(to, payload.data(), n);
        payload = payload.subspan(n);
    });
}

bool Receiving::mark_applied(Recv& recv, uint32_t chunk) {
    ++recv.peer->stats.chunks_applied;
    if (!recv.applied.test(chunk)) ++recv.finished;
    recv.applied.set(chunk);
    acknowledge(recv, chunk);
    if (Send* forward = recv.forward.get()) sending_->mark_ready(*forward, chunk);
    if (recv.finished < recv.chunks) return true;
    complete(recv);
    return false;
}

void Receiving::complete(Recv& recv) {
    Peer& peer = *recv.peer;
    if (recv.anew && recv.grant_pending) acknowledge(peer, {to_wire(recv.key), 0, recv.chunks});
    peer.tombstones.add(recv.key, {recv.chunks, peer.generation, peer.acks_sent + 1});
    shared_->emit(MeshEvent::Kind::done, recv.handle, peer, recv.key);
    release(recv);
}

void Receiving::release(Recv& recv) {
    Peer& peer = *recv.peer;
    peer.recv_of.erase(recv.key);
    peer.recvs.erase(recv);
    recv.op->recvs.erase(recv);
    shared_->release_if_empty(*recv.op);
    recv.memory.clear();
    recv.forward = {};
    shared_->recvs.release(recv);
}

void Receiving::on_ask(Peer& peer, const TransferKey& key) {
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
    if (!shared_->is_gone(key.op)) peer.early.want(key);
}

void Receiving::refuse(Peer& peer, const DataFrame& f) {
    peer.early.want(from_wire(f.key));
    ++peer.stats.nacks_sent;
    peer.nacks.push_back({f.key, f.chunk, 1});
    shared_->touch(peer);
    if (peer.nacks.size() >= ranges_pending_max) write_lists(peer);
}

void Receiving::on_channel_lost(Peer& peer) {
    for (Stream& s : peer.streams) {
        shared_->give_stage(std::move(s.stage));
        s = Stream{};
    }
    for (Recv* r = peer.recvs.front(); r != nullptr; r = peer.recvs.after(*r)) r->grant_pending = false;
    peer.acks.clear();
    peer.nacks.clear();
    peer.grants.clear();
    ++peer.ack_batch;
}

void Receiving::on_channel(Peer& peer) {
    peer.tombstones.new_generation();
    peer.acks_sent = peer.acks_processed = peer.acks_confirmed = 0;
    for (Recv* r = peer.recvs.front(); r != nullptr; r = peer.recvs.after(*r))
        if (r->needs_grant) grant(*r);
}

}  // namespace nexar::link
