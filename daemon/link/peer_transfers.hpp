// The rows of the transfer table that concern one peer, and what is due to be sent to it.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "core/time.hpp"
#include "link/early.hpp"
#include "link/send_turns.hpp"
#include "link/table_config.hpp"
#include "link/tombstones.hpp"

namespace nexar::link {

// What a carrier takes. It empties the lists, and takes chunks of ready sends with SendTable::take().
struct Due {
    static constexpr size_t ranges_max = 1024;  // then the carrier sends them at once [T5]
    // Acks that no sender awaits [T6]: of each the sender keeps its memory until then.
    static constexpr size_t waiting_acks_max = 16;
    static constexpr size_t waiting_bytes_max = 256 * 1024;  // of the chunks
    static constexpr Duration ack_delay_max{1'000'000};

    std::vector<ChunkRange> acks, nacks, asks;
    std::vector<Weak<Recv>> grants;
    bool asks_end = false;  // the last of `asks` is the last of this generation
    std::array<SendTurns, class_count> ready;
    bool ack_is_awaited = false;  // of `acks` one
    size_t acked_bytes = 0;       // of the chunks in `acks` of which none is
    Time acks_since = never;      // when a carrier first left them

    // What leaves after them must not overtake them: a grant anew makes what was acknowledged before void.
    bool acks_leave(Time now) {
        if (acks.empty()) return false;
        const bool goes_along = !nacks.empty() || !asks.empty() || !grants.empty() || asks_end;
        if (goes_along || ack_is_awaited || now == never || acks.size() >= waiting_acks_max ||
            acked_bytes >= waiting_bytes_max)
            return true;
        acks_since = std::min(acks_since, now);
        return now - acks_since >= ack_delay_max;
    }
    // Waiting acks leave with the first flush from then on; never: none waits.
    Time acks_due() const { return acks_since == never ? never : acks_since + ack_delay_max; }
    void clear_acks() {
        acks.clear();
        ack_is_awaited = false;
        acked_bytes = 0;
        acks_since = never;
    }

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
