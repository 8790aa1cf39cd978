// TransferTable: what concerns both halves.
#include "link/transfer_table.hpp"

namespace nexar::link {

TransferTable::TransferTable(const TableConfig& config, Events& events)
    : state_(config, events), sends(state_), recvs(state_, sends) {}

PeerTransfers& TransferTable::peer(PeerIndex index) {
    NEXAR_CHECK(index.value < peers_max);
    if (index.value >= peers_.size()) peers_.resize(index.value + 1);
    std::unique_ptr<PeerTransfers>& at = peers_[index.value];
    if (!at) at = std::make_unique<PeerTransfers>(index, state_.config);
    return *at;
}

PeerTransfers* TransferTable::find_peer(PeerIndex index) {
    return index.value < peers_.size() ? peers_[index.value].get() : nullptr;
}

void TransferTable::begin_generation(PeerTransfers& peer, uint32_t generation) {
    NEXAR_CHECK(!peer.connected);
    peer.generation = generation;
    peer.connected = true;
    peer.dropped = false;
    recvs.begin_generation(peer);
    sends.begin_generation(peer);
}

void TransferTable::end_generation(PeerTransfers& peer) {
    peer.connected = false;
    sends.end_generation(peer);
    recvs.end_generation(peer);
}

void TransferTable::drop(PeerTransfers& peer) {
    NEXAR_CHECK(!peer.connected);
    peer.dropped = true;
    while (Recv* r = peer.recvs.front()) recvs.fail(*r);
    while (Send* s = peer.sends.front()) sends.fail(*s);
    peer.early.clear();
    peer.tombstones.clear();
}

void TransferTable::withdraw(const OpKey& op) {
    state_.ops.remember_withdrawn(op);
    for (const std::unique_ptr<PeerTransfers>& peer : peers_)
        if (peer) peer->early.drop_op(op);
    OpRecord* record = state_.ops.find(op);
    if (record == nullptr) return;
    const uint64_t serial = record->serial;  // the record goes with its last transfer
    fail_recvs(*record);
    while (record->serial == serial && !record->sends.empty()) sends.fail(*record->sends.front());
}

void TransferTable::retract(const OpKey& op) {
    if (OpRecord* record = state_.ops.find(op)) fail_recvs(*record);
}

void TransferTable::fail_recvs(OpRecord& record) {
    const uint64_t serial = record.serial;
    while (record.serial == serial && !record.recvs.empty()) recvs.fail(*record.recvs.front());
}

// Tombstones stay: the ranks here may have all they wanted while a sender still waits for a lost ack.
void TransferTable::forget_group(const GroupId& group) {
    state_.ops.remember_forgotten(group);
    for (const std::unique_ptr<PeerTransfers>& peer : peers_)
        if (peer) peer->early.drop_group(group);
}

TransferStats TransferTable::stats_of(const PeerTransfers& peer) const {
    TransferStats out = peer.stats;
    out.tombstones = peer.tombstones.size();
    out.unexpected_bytes = peer.early.unexpected_bytes();
    out.early_bytes = peer.early.bytes();
    out.grants_unclaimed = peer.early.grants();
    return out;
}

void TransferTable::check_invariants() const {
    size_t due = 0, ops = 0;
    for (const std::unique_ptr<PeerTransfers>& peer : peers_) {
        if (!peer) continue;
        due += peer->is_due ? 1 : 0;
        NEXAR_CHECK(!peer->connected || !peer->dropped);
        sends.check_invariants(*peer);
        recvs.check_invariants(*peer);
        peer->early.check_invariants();
        peer->tombstones.check_invariants();
        // Each op is counted at its first transfer.
        for (Send* s = peer->sends.front(); s != nullptr; s = peer->sends.after(*s))
            ops += s->op->sends.front() == s ? 1 : 0;
        for (Recv* r = peer->recvs.front(); r != nullptr; r = peer->recvs.after(*r))
            ops += r->op->sends.empty() && r->op->recvs.front() == r ? 1 : 0;
    }
    NEXAR_CHECK(due == state_.due_peers.size() && ops == state_.ops.size());
}

}  // namespace nexar::link
