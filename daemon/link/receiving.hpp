// Receiving: applies arriving chunks to their receives, exactly once [W3]; a chunk without a receive goes to
// the unexpected-message buffer, or is refused [W2]. It sends the grants, acks and nacks.
#pragma once

#include "link/sending.hpp"
#include "link/shared.hpp"

namespace nexar::link {

class Receiving {
  public:
    Receiving(Shared& shared, Sending& sending) : shared_(&shared), sending_(&sending) {}

    void post(RecvSpec&& spec, uint64_t handle, Send* forward);
    void fail(Recv& recv);

    // One data frame, as its bytes arrive. Requires: stream.frame is decoded and valid.
    void begin(Peer& peer, Stream& stream);
    void feed(Peer& peer, Stream& stream, Bytes bytes);
    void end(Peer& peer, Stream& stream);

    void on_ask(Peer& peer, const TransferKey& key);
    void on_asks_ended(Peer& peer) { peer.tombstones.asks_ended(peer.generation); }

    void on_channel_lost(Peer& peer);
    void on_channel(Peer& peer);   // a new channel: grants again
    void write_lists(Peer& peer);  // acks, nacks, asks, grants

  private:
    static constexpr size_t ranges_pending_max = 1024;  // at this number they are sent at once, in one frame
    static_assert(ranges_pending_max < ranges_per_frame);

    void apply_early(Recv& recv, const EarlyRecv& early);
    bool apply_whole(Recv& recv, const DataFrame& frame, Bytes payload);  // false: it ended the receive
    bool agrees(Recv& recv, const DataFrame& frame);
    void combine(Recv& recv, size_t offset, Bytes payload);
    bool mark_applied(Recv& recv, uint32_t chunk);
    void complete(Recv& recv);
    void release(Recv& recv);
    void grant(Recv& recv);
    void refuse(Peer& peer, const DataFrame& frame);
    void acknowledge(Recv& recv, uint32_t chunk);
    void acknowledge(Peer& peer, const RangeEntry& range);
    void acknowledge_again(Peer& peer, const TransferKey& key, Tombstones::Stone stone, uint32_t first,
                           uint32_t count);
    void write_ranges(Peer& peer, FrameKind kind, std::vector<RangeEntry>& ranges, uint32_t last_flags);
    void write_grants(Peer& peer);
    void add_grant(Peer& peer, Recv& recv, uint32_t& count);
    void write_grant_frame(Peer& peer, uint32_t& count);

    Shared* shared_;
    Sending* sending_;
    std::vector<std::byte> grant_bytes_;
};

}  // namespace nexar::link
