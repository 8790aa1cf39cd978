// TransferTable: which transfers are posted, which of their chunks are where, and what each peer is to be
// sent. It knows no frame, stream or channel: a carrier moves the bytes and reports what happened
// (docs/protocol/transfers.md has the contract between the two).
#pragma once

#include <memory>
#include <vector>

#include "link/recv_table.hpp"
#include "link/send_table.hpp"
#include "link/table_state.hpp"

namespace nexar::link {

class TransferTable {
  public:
    static constexpr uint32_t peers_max = 1u << 20;

    TransferTable(const TableConfig& config, Events& events);

    PeerTransfers& peer(PeerIndex index);
    PeerTransfers* find_peer(PeerIndex index);

    // A connection with the peer begins; or it ended, and transfers wait. Its carrier sees to it that the
    // generations grow.
    void begin_generation(PeerTransfers& peer, uint32_t generation);
    void end_generation(PeerTransfers& peer);
    void drop(
        PeerTransfers& peer);  // Requires: its generation has ended. Its transfers fail, also later ones

    void withdraw(const OpKey& op);  // all its transfers fail; late chunks are dropped
    void retract(const OpKey& op);   // its receives fail
    void forget_group(const GroupId& group);

    void touch(PeerTransfers& peer) { state_.touch(peer); }
    // f(peer) for each peer that has got something due since the last call. A ready send for which f finds no
    // room stays in Due::ready: its carrier takes it when there is room.
    template <class F>
    void take_due(F&& f) {
        size_t kept = 0;
        for (PeerTransfers* peer : state_.due_peers) {
            f(*peer);
            peer->is_due = !peer->due.acks.empty();  // they wait for more
            if (peer->is_due) state_.due_peers[kept++] = peer;
        }
        state_.due_peers.resize(kept);
    }
    // `never`: acks that no sender awaits leave at once.
    void set_time(Time now) { state_.now = now; }
    bool acks_leave(PeerTransfers& peer) { return peer.due.acks_leave(state_.now); }
    // When the first of the acks that wait has waited long enough; never: none does.
    Time acks_due() const {
        Time at = never;
        for (const PeerTransfers* peer : state_.due_peers) at = std::min(at, peer->due.acks_due());
        return at;
    }
    bool has_transfers() const { return state_.ops.size() > 0; }
    TransferStats stats_of(const PeerTransfers& peer) const;
    void check_invariants() const;  // for tests; walks everything

  private:
    void fail_recvs(OpRecord& record);

    TableState state_;
    std::vector<std::unique_ptr<PeerTransfers>> peers_;  // by PeerIndex; null: unknown

  public:
    SendTable sends;
    RecvTable recvs;
};

}  // namespace nexar::link
