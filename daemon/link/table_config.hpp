// The limits of the transfer table (docs/protocol/wire.md, "Bounds"), and what it counts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nexar::link {

struct TableConfig {
    size_t eager_bytes_max = 32 * 1024;  // a transfer up to this size is sent without waiting for its grant
    size_t eager_room_per_group = 256 * 1024;  // unexpected-message buffer per (peer, group); beyond it: NACK
    size_t eager_groups_max = 1024;            // groups with early things per peer
    size_t early_bytes_max = 16 << 20;    // unexpected-message buffers and wanted grants of a peer's groups
    size_t grants_unclaimed_max = 65536;  // grants kept for sends that were not posted yet, per peer
    size_t grants_per_group_max = 16384;  // the same, per (peer, group)
    size_t wanted_per_group_max = 4096;   // refused transfers remembered until their receive is posted
    size_t tombstones_max = 65536;        // finished receives that the sender has not confirmed, per peer
    // Tests only: each switch breaks one thing that a named test must notice (docs/protocol/wire.md,
    // sabotage).
    struct Sabotage {
        bool apply_chunk_twice = false;
        bool no_deduplication = false;
        bool skip_descriptor_check = false;
        bool skip_grant = false;
    } sabotage;
};

// Of one peer.
struct TransferStats {
    uint64_t chunks_applied = 0, chunks_duplicate = 0, nacks_sent = 0, nacks_received = 0, grants_sent = 0;
    // What is kept for this peer now, each below its limit [W8].
    uint64_t tombstones = 0, unexpected_bytes = 0, early_bytes = 0, grants_unclaimed = 0;
};

}  // namespace nexar::link
