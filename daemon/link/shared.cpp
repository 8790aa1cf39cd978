// Shared state of a Mesh's parts: tombstones, the op index, events.
#include "link/shared.hpp"

namespace nexar::link {

void Tombstones::add(const TransferKey& key, const Stone& stone) {
    while (stones_.size() >= limit_) pop(old_.empty() ? order_ : old_);
    stones_.insert(key, stone);
    order_.push_back({key, stone.generation, stone.ack_frame});
}

void Tombstones::answered(const TransferKey& key, const Stone& stone) {
    // One entry per key and ack frame at most, or a peer that asks forever would make the order grow.
    Stone* at = stones_.find(key);
    const bool again = at->generation == stone.generation && at->ack_frame == stone.ack_frame;
    *at = stone;
    if (again) return;
    order_.push_back({key, stone.generation, stone.ack_frame});
    while (order_.size() > 2 * limit_) pop(order_);
}

void Tombstones::confirm(uint32_t generation, uint64_t acks_seen) {
    while (!order_.empty()) {
        const Entry& e = order_.front();
        if (e.generation == generation && e.ack_frame > acks_seen) return;
        pop(order_);
    }
}

void Tombstones::new_generation() {
    old_.insert(old_.end(), order_.begin(), order_.end());
    order_.clear();
    while (old_.size() > limit_) pop(old_);
}

void Tombstones::asks_ended(uint32_t generation) {
    while (!old_.empty()) {
        const Stone* stone = stones_.find(old_.front().key);
        if (stone != nullptr && stone->generation == generation)
            old_.pop_front();  // asked about and answered: it has a new entry
        else
            pop(old_);
    }
}

void Tombstones::clear() {
    stones_.clear();
    order_.clear();
    old_.clear();
}

// Drops the entry, and its stone unless that has a newer entry.
void Tombstones::pop(std::deque<Entry>& from) {
    const Entry e = from.front();
    from.pop_front();
    const Stone* stone = stones_.find(e.key);
    if (stone != nullptr && stone->generation == e.generation && stone->ack_frame == e.ack_frame)
        stones_.erase(e.key);
}

Peer& Shared::peer(PeerIndex index) {
    NEXAR_CHECK(index.value < peers_max);
    if (index.value >= peers.size()) peers.resize(index.value + 1);
    std::unique_ptr<Peer>& at = peers[index.value];
    if (!at) at = std::make_unique<Peer>(index, config);
    return *at;
}

Peer* Shared::find_peer(PeerIndex index) {
    return index.value < peers.size() ? peers[index.value].get() : nullptr;
}

void Shared::touch(Peer& peer) {
    if (peer.dirty) return;
    peer.dirty = true;
    dirty.push_back(&peer);
}

OpRecord& Shared::op_record(const OpKey& op) {
    if (OpRecord** at = ops_.find(op)) return **at;
    OpRecord& record = op_records_.take();
    record.key = op;
    ops_.insert(op, &record);
    return record;
}

OpRecord* Shared::find_op(const OpKey& op) {
    OpRecord** at = ops_.find(op);
    return at != nullptr ? *at : nullptr;
}

void Shared::release_if_empty(OpRecord& op) {
    if (!op.sends.empty() || !op.recvs.empty()) return;
    ops_.erase(op.key);
    op_records_.release(op);
}

bool Shared::is_gone(const OpKey& op) const {
    if (!forgotten_.empty() && forgotten_.contains(op.group)) return true;
    if (withdrawn_.empty()) return false;
    const auto at = withdrawn_.find(op.group);
    return at != withdrawn_.end() && at->second.ops.contains(op);
}

void Shared::remember_withdrawn(const OpKey& op) {
    Withdrawn& w = withdrawn_[op.group];
    if (!w.ops.insert(op).second) return;
    w.order.push_back(op);
    if (w.order.size() <= withdrawn_per_group_max) return;
    w.ops.erase(w.order.front());
    w.order.pop_front();
}

void Shared::remember_forgotten(const GroupId& group) {
    withdrawn_.erase(group);
    if (!forgotten_.insert(group).second) return;
    forgotten_order_.push_back(group);
    if (forgotten_order_.size() <= groups_forgotten_max) return;
    forgotten_.erase(forgotten_order_.front());
    forgotten_order_.pop_front();
}

void Shared::emit(MeshEvent::Kind kind, uint64_t handle, Peer& peer, const TransferKey& key) {
    MeshEvent& e = events.emplace_back();
    e.kind = kind;
    e.handle = handle;
    e.peer = peer.index;
    e.key = key;
}

void Shared::tell_mismatch(Transfer& t, const Agreement& theirs) {
    if (t.mismatch_told) return;
    t.mismatch_told = true;
    emit(MeshEvent::Kind::mismatch, t.handle, *t.peer, t.key);
    events.back().theirs = theirs;
}

void Shared::discard_log(Peer& peer, const std::string& why) {
    peer.log.discard();
    log_discarded(peer, why, false);
}

void Shared::report_room(Peer& peer) {
    if (!peer.log.take_room_again()) return;
    MeshEvent& e = events.emplace_back();
    e.kind = MeshEvent::Kind::log_room;
    e.peer = peer.index;
}

// What arrived of it and was not polled yet goes with it.
void Shared::log_discarded(Peer& peer, const std::string& why, bool by_peer) {
    std::erase_if(events, [&](const MeshEvent& e) { return e.logged && e.peer == peer.index; });
    MeshEvent& e = events.emplace_back();
    e.kind = MeshEvent::Kind::log_discarded;
    e.peer = peer.index;
    e.text = why;
    e.by_peer = by_peer;
}

FrameStart Shared::start_of(Peer& peer, FrameKind kind, uint64_t bytes_of_frame) {
    peer.acks_confirmed = peer.acks_processed;
    peer.spoke_in_turn = turn;
    FrameStart start{};
    start.length = bytes_of_frame - length_bytes;
    start.kind = static_cast<uint8_t>(kind);
    start.header_words = static_cast<uint8_t>(header_bytes_of(kind) / sizeof(uint64_t));
    start.generation = peer.generation;
    start.incarnation = config.incarnation;
    start.acks_seen = peer.acks_processed;
    return start;
}

std::unique_ptr<std::byte[]> Shared::take_stage() {
    if (stages_.empty()) return std::make_unique_for_overwrite<std::byte[]>(chunk_bytes_max);
    std::unique_ptr<std::byte[]> stage = std::move(stages_.back());
    stages_.pop_back();
    return stage;
}

}  // namespace nexar::link
