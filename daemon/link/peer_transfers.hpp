// The rows of the transfer table that concern one peer, and what is due to be sent to it.
#pragma once

#include <array>
#include <vector>

#include "link/early.hpp"
#include "link/send_turns.hpp"
#include "link/table_config.hpp"
#include "link/tombstones.hpp"

namespace nexar::link {

// What a carrier takes. It empties the lists, and takes chunks of ready sends with SendTable::take().
struct Due {
    static constexpr size_t ranges_max = 1024;  // then the carrier sends them at once [T5]

    std::vector<ChunkRange> acks, nacks, asks;
    std::vector<Weak<Recv>> grants;
    bool asks_end = false;  // the last of `asks` is the last of this generation
    std::array<SendTurns, class_count> ready;

    bool is_full() const { return acks.size() >= ranges_max || nacks.size() >= ranges_max; }
};

struct PeerTransfers {
    PeerTransfers(PeerIndex i, const TableConfig& c) : index(i), early(c), tombstones(c.tombstones_max) {}

    PeerIndex index;
    bool connected = false;  // a generation has begun and not ended
    bool dropped = false;
    bool is_due = false;  // it is in TableState::due_peers
    uint32_t generation = 0;
    TransferStats stats;

    FlatMap<TenantKey, TenantSends*, TenantKeyHash> tenants;  // those that have sends
    FlatMap<TransferKey, Send*, TransferKeyHash> send_of;
    FlatMap<TransferKey, Recv*, TransferKeyHash> recv_of;
    List<Send, &Send::of_peer> sends;
    List<Recv, &Recv::of_peer> recvs;
    Early early;
    Tombstones tombstones;

    Due due;
    uint64_t ack_batch = 1;     // of Due::acks; grows when they leave or are dropped
    uint64_t batches_sent = 0;  // of acks, in this generation
};

}  // namespace nexar::link
