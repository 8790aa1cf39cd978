// The receiving half of the transfer table: posted receives and their applied-bitmaps [W3]. A carrier reports
// chunks that arrive, puts their bytes into the receive's memory inside apply(), and sends what is due.
#pragma once

#include "link/send_table.hpp"
#include "link/table_state.hpp"

namespace nexar::link {

// What a carrier does with an arriving chunk.
enum class Arrival : uint8_t {
    place,   // into the receive, with apply()
    buffer,  // no receive is posted: keep() it when it is whole
    drop,    // nothing more: it was acknowledged again, refused, or is of no use
};

class RecvTable {
  public:
    RecvTable(TableState& state, SendTable& sends) : state_(&state), sends_(&sends) {}

    // nullptr: it ended at once. `early`: chunks that arrived before; the carrier applies them now, in order.
    Recv* post(PeerTransfers& peer, RecvSpec&& spec, uint64_t handle, Send* forward, EarlyChunks& early);
    void fail(Recv& recv);

    // A chunk begins to arrive. Requires: its header was judged (chunk and shape fit each other).
    Arrival arrive(PeerTransfers& peer, const ChunkHeader& header, Recv*& recv);
    // A chunk for which arrive() returned `buffer` is whole. Not nullptr: its receive was posted meanwhile,
    // and `bytes` is left to the caller to apply.
    Recv* keep(PeerTransfers& peer, const ChunkHeader& header, std::vector<std::byte>&& bytes);
    bool agrees(Recv& recv, const Terms& theirs);  // [W4]; reports it if not

    // Exactly once [W3]: place() runs unless the chunk was applied before, and the chunk is marked in the
    // same step. Requires: after place() all its bytes are in the memory. False: the receive has ended.
    template <class F>
    bool apply(Recv& recv, uint32_t chunk, F&& place) {
        if (recv.applied.test(chunk) && !state_->config.sabotage.no_deduplication) {
            acknowledge(recv, chunk);
            return true;
        }
        place();
        return mark_applied(recv, chunk);
    }

    // From the sender.
    void on_ask(PeerTransfers& peer, const TransferKey& key);
    void on_asks_ended(PeerTransfers& peer) { peer.tombstones.asks_ended(peer.generation); }
    const char* on_acks_seen(PeerTransfers& peer, uint64_t batches);  // the rule that was broken, or nullptr

    void acks_taken(PeerTransfers& peer);  // Due::acks left as one batch
    // The grant of a receive in Due::grants: `words` spans its whole bitmap, which only the next call of the
    // table changes.
    Grant take_grant(Recv& recv);

    void begin_generation(PeerTransfers& peer);  // grant again
    void end_generation(PeerTransfers& peer);

    void check_invariants(const PeerTransfers& peer) const;  // for tests; walks all receives

  private:
    bool mark_applied(Recv& recv, uint32_t chunk);
    void complete(Recv& recv);
    void release(Recv& recv);
    void grant(Recv& recv);
    void refuse(PeerTransfers& peer, const ChunkHeader& header);
    void acknowledge(Recv& recv, uint32_t chunk);
    void acknowledge(PeerTransfers& peer, const ChunkRange& range);
    void acknowledge_now(PeerTransfers& peer, const ChunkRange& range);
    void acknowledge_again(PeerTransfers& peer, const TransferKey& key, Tombstones::Stone stone,
                           uint32_t first, uint32_t count);

    TableState* state_;
    SendTable* sends_;
};

}  // namespace nexar::link
