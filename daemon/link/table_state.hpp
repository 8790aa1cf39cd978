// What the two halves of the transfer table share.
#pragma once

#include <vector>

#include "link/event.hpp"
#include "link/op_index.hpp"
#include "link/peer_transfers.hpp"

namespace nexar::link {

struct TableState {
    TableState(const TableConfig& c, Events& e) : config(c), events(&e) {}

    void emit(MeshEvent::Kind kind, uint64_t handle, const PeerTransfers& peer, const TransferKey& key) {
        MeshEvent& e = events->emplace_back();
        e.kind = kind;
        e.handle = handle;
        e.peer = peer.index;
        e.key = key;
    }
    void report_mismatch(Transfer& t, const Agreement& theirs) {
        if (t.mismatch_reported) return;
        t.mismatch_reported = true;
        emit(MeshEvent::Kind::mismatch, t.handle, *t.peer, t.key);
        events->back().theirs = theirs;
    }
    void touch(PeerTransfers& peer) {  // something is due
        if (peer.is_due) return;
        peer.is_due = true;
        due_peers.push_back(&peer);
    }
    bool is_eager(Class cls, size_t bytes) const {
        return cls != Class::bulk && bytes <= config.eager_bytes_max;
    }

    const TableConfig config;
    Events* events;
    Slab<Send> send_rows;
    Slab<TenantSends> tenant_rows;
    Slab<Recv> recv_rows;
    OpIndex ops;
    std::vector<PeerTransfers*> due_peers;  // each once
    Time now = never;                       // of the latest flush; never: no ack may wait
};

}  // namespace nexar::link
