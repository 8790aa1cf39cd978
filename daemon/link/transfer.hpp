// The words that the engine and the link share: what a transfer is and how it is named.
// The protocol is docs/protocol/wire.md; numbers in brackets, like [W3], are its invariants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.hpp"
#include "core/result.hpp"
#include "reduce/dtype.hpp"

namespace nexar {
using reduce::Dtype;
using reduce::ReduceOp;
}  // namespace nexar

namespace nexar::link {

using reduce::Dtype;
using reduce::ReduceOp;

// A peer node, as this daemon numbers it: an index into its peer table, never reused.
using PeerIndex = Id<struct PeerIndexTag, uint32_t>;

// An op between nodes: a collective's sequence number in its group or, with the top bit set, one message.
struct OpKey {
    GroupId group;
    GroupEpoch epoch;
    uint64_t op = 0;
    static constexpr uint64_t message_bit = uint64_t{1} << 63;
    auto operator<=>(const OpKey&) const = default;
};

// One direction of one step: unique per (sender node, receiver node, key, phase) [W1].
struct TransferKey {
    OpKey op;
    uint32_t phase = 0;
    auto operator<=>(const TransferKey&) const = default;
};

// The strict order of the sender: control before rpc before small before bulk, with a floor for each.
enum class Class : uint8_t { control = 0, rpc = 1, small = 2, bulk = 3 };
constexpr size_t class_count = 4;

// A run of memory, in logical order. The memory outlives the transfer: the engine sees to that.
struct Extent {
    std::byte* data = nullptr;
    size_t bytes = 0;
};
using Extents = std::vector<Extent>;
inline size_t bytes_of(std::span<const Extent> extents) {
    size_t n = 0;
    for (const Extent& e : extents) n += e.bytes;
    return n;
}

// Identical on both sides of a transfer, or it is refused before a byte is combined [W4].
struct Agreement {
    uint64_t plan_hash = 0;        // of the group's PlanTable
    uint64_t descriptor_hash = 0;  // of the op's descriptor
    bool operator==(const Agreement&) const = default;
};

// Bytes per chunk of a transfer; the last chunk is shorter. Agreed by the PlanTable, so both sides compute
// alike. Chunk i covers logical bytes [i * chunk_bytes, ...). A multiple of 64, so a chunk never splits an
// element.
constexpr uint32_t chunk_bytes_max = 256 * 1024;
constexpr uint32_t transfer_chunks_max = 1u << 20;

struct SendSpec {
    TransferKey key;
    PeerIndex to;
    Class cls = Class::bulk;
    Agreement agreement;
    Extents memory;  // read until the send is done (every chunk acked)
    uint32_t chunk_bytes = chunk_bytes_max;
    // false: chunks become sendable one by one, as the recv that forwards into this send applies them.
    bool ready = true;
};

struct RecvSpec {
    TransferKey key;
    PeerIndex from;
    Class cls = Class::bulk;
    Agreement agreement;
    Extents memory;  // written until the recv is done
    uint32_t chunk_bytes = chunk_bytes_max;
    // Set: received chunks are combined into memory (memory = memory op received), whole chunks only, once
    // [W3]. Not set: they are copied.
    struct Reduce {
        Dtype dtype;
        ReduceOp op;
    };
    std::optional<Reduce> reduce;
    // Set: the index, in the same batch, of the SendSpec (ready = false, same bytes and chunk_bytes) whose
    // chunk i becomes sendable when our chunk i was applied: recv_reduce_send and recv_copy_send.
    std::optional<size_t> forward;
    // An earlier receive of this key was retracted: what it has acknowledged is to be sent again, too.
    bool anew = false;
};

}  // namespace nexar::link
