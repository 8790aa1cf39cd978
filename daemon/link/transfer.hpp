// The types that engine and link share: transfers and their keys. docs/protocol/wire.md has the protocol and
// its invariants ([W3]).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/class.hpp"
#include "core/ids.hpp"
#include "core/priority.hpp"
#include "core/recycled.hpp"
#include "core/region.hpp"
#include "core/result.hpp"
#include "link/account.hpp"
#include "reduce/dtype.hpp"

namespace nexar {
using reduce::Dtype;
using reduce::ReduceOp;
}  // namespace nexar

namespace nexar::link {

using reduce::Dtype;
using reduce::ReduceOp;

// This daemon's number of a peer: an index into its peer table, never reused.
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

// The stream that a chunk leaves on. The receiver takes it from any [K23].
inline Class stream_of(Class cls, Priority priority) {
    constexpr Class streams[] = {Class::rpc, Class::small, Class::bulk};
    return cls == Class::rpc ? cls : streams[index_of(priority)];
}

// A range of a region. Requires: the transfer's operation pins the region until the transfer has ended [M3].
struct Extent {
    Place at;
    size_t bytes = 0;
    std::byte* data() const { return at.resolve(); }
};
using Extents = Vector<Extent>;
inline size_t bytes_of(std::span<const Extent> extents) {
    size_t n = 0;
    for (const Extent& e : extents) n += e.bytes;
    return n;
}

// Requires: identical on both sides of a transfer; otherwise it is refused before a byte is combined [W4].
struct Agreement {
    uint64_t plan_hash = 0;        // of the group's PlanTable
    uint64_t descriptor_hash = 0;  // of the op's descriptor
    bool operator==(const Agreement&) const = default;
};

// Upper limit of the bytes per chunk; the last chunk of a transfer may be shorter. The PlanTable fixes
// chunk_bytes, so both sides cut alike: chunk i covers logical bytes [i * chunk_bytes, ...). A multiple of
// 64, so that no chunk splits an element.
constexpr uint32_t chunk_bytes_max = 256 * 1024;
constexpr uint32_t transfer_chunks_max = 1u << 20;

// What both sides of a transfer state about it [W4].
struct Terms {
    Agreement agreement;
    uint64_t bytes = 0;
    uint32_t chunk_bytes = 0;
    bool same_shape(const Terms& other) const {
        return bytes == other.bytes && chunk_bytes == other.chunk_bytes;
    }
    bool operator==(const Terms&) const = default;
};

// Number of chunks; bytes and chunk_bytes are not 0.
inline uint64_t chunks_of(uint64_t bytes, uint64_t chunk_bytes) {
    return (bytes - 1) / chunk_bytes + 1;
}
inline uint32_t bytes_of_chunk(uint64_t bytes, uint32_t chunk_bytes, uint32_t chunk) {
    const uint64_t left = bytes - uint64_t{chunk} * chunk_bytes;
    return left < chunk_bytes ? static_cast<uint32_t>(left) : chunk_bytes;
}

struct SendSpec {
    TransferKey key;
    PeerIndex to;
    Class cls = Class::bulk;
    Agreement agreement;
    Extents memory;  // read until every chunk is acknowledged
    uint32_t chunk_bytes = chunk_bytes_max;
    Account account{};  // its tenant: the link is shared in turns [N14]
    Priority priority = Priority::bulk;
    // false: a chunk can be sent when the receive that forwards into this send has applied it.
    bool ready = true;
};

struct RecvSpec {
    TransferKey key;
    PeerIndex from;
    Class cls = Class::bulk;
    Agreement agreement;
    Extents memory;  // written until the receive is complete
    uint32_t chunk_bytes = chunk_bytes_max;
    // Set: whole chunks are combined into the memory, each once (memory = memory op received) [W3]. Not set:
    // they are copied.
    struct Reduce {
        Dtype dtype;
        ReduceOp op;
    };
    std::optional<Reduce> reduce;
    // Set (recv_reduce_send, recv_copy_send): the index, in the same batch, of the SendSpec (ready = false,
    // same bytes and chunk_bytes) whose chunk i can be sent when chunk i of this receive was applied.
    std::optional<size_t> forward;
    // An earlier receive of this key was retracted: chunks that it has acknowledged must be sent again, too.
    bool anew = false;
    // The sender awaits no acknowledgement: it may wait for more of them [T6].
    bool ack_may_wait = false;
};

}  // namespace nexar::link
