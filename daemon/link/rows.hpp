// One row of the transfer table each: a posted send, a posted receive; and what the table and a carrier pass
// each other about them. docs/protocol/transfers.md has the contract.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "link/account.hpp"
#include "link/containers.hpp"
#include "link/memory_map.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

struct OpKeyHash {
    size_t operator()(const OpKey& k) const noexcept {
        uint64_t x = std::hash<GroupId>{}(k.group) + k.op * 0x9e3779b97f4a7c15u + k.epoch.value;
        x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
        return static_cast<size_t>(x ^ (x >> 32));
    }
};
struct TransferKeyHash {
    size_t operator()(const TransferKey& k) const noexcept {
        uint64_t x = (OpKeyHash{}(k.op) ^ k.phase) * 0xd6e8feb86659fd93u;
        return static_cast<size_t>(x ^ (x >> 32));
    }
};

struct TenantKey {
    Account account;
    Class cls = Class::bulk;
    bool operator==(const TenantKey&) const = default;
};
struct TenantKeyHash {
    size_t operator()(const TenantKey& k) const noexcept {
        const uint64_t x = (k.account.value * class_count + index_of(k.cls)) * 0xd6e8feb86659fd93u;
        return static_cast<size_t>(x ^ (x >> 32));
    }
};

// Where a one-sided carrier of the sender reaches the receive's memory: a grant brings it, the table keeps it
// with the grant and then with the send, and does not read it. Zero: streams.
struct RemoteMemory {
    uint64_t key = 0;
    uint64_t address = 0;
    bool operator==(const RemoteMemory&) const = default;
};

// A chunk as its sender describes it.
struct ChunkHeader {
    TransferKey key;
    Terms terms;
    uint32_t chunk = 0;
    uint64_t offset() const { return uint64_t{chunk} * terms.chunk_bytes; }
    uint32_t payload() const { return bytes_of_chunk(terms.bytes, terms.chunk_bytes, chunk); }
};

struct ChunkRange {
    TransferKey key;
    uint32_t first = 0;
    uint32_t count = 0;
};

// A grant, or one part of it if its bitmap is long.
struct Grant {
    TransferKey key;
    Terms terms;
    RemoteMemory memory;
    bool more = false;  // other parts follow
    bool anew = false;  // what the bitmap does not name is to be sent again
    uint32_t first_word = 0;
    std::span<const uint64_t> words;  // of the applied-bitmap; words that are not given are 0
};

struct PeerTransfers;
struct OpRecord;

// What a send and a receive have in common.
struct Transfer {
    uint64_t serial = 0;  // 0: in the slab's free list
    uint64_t handle = 0;
    TransferKey key;
    Agreement agreement;
    Class cls = Class::bulk;
    PeerTransfers* peer = nullptr;
    OpRecord* op = nullptr;
    MemoryMap memory;
    uint32_t chunk_bytes = 0;
    uint32_t chunks = 0;
    uint32_t finished = 0;  // chunks applied, or acknowledged
    bool mismatch_reported = false;

    Terms terms() const { return {agreement, memory.bytes(), chunk_bytes}; }
    uint64_t offset_of(uint32_t chunk) const { return uint64_t{chunk} * chunk_bytes; }
    uint32_t payload_of(uint32_t chunk) const { return bytes_of_chunk(memory.bytes(), chunk_bytes, chunk); }
};

struct TenantSends;

struct Send : Transfer {
    ChunkSet queued, flying, acked;  // [W6]; in none of them: not ready
    bool eager = false;              // may go without a grant
    bool granted = false;            // in this generation
    bool tried = false;              // some chunk was sent once, in whatever generation
    RemoteMemory remote;             // of the newest grant
    Priority priority = Priority::bulk;
    TenantSends* tenant = nullptr;  // whose it is
    Hook<Send> of_peer, of_op, ready;
};

// One tenant's sends of one class to one peer.
struct TenantSends {
    uint64_t serial = 0;
    Account account;
    Class cls = Class::bulk;
    size_t posted = 0;   // sends that have not ended; with the last one this row ends
    int64_t credit = 0;  // what it may still send in its turn
    std::array<List<Send, &Send::ready>, priority_count> ready;
    PriorityTurns priorities;
    size_t next = 0;         // the list of `ready` that is served next, if something is ready
    Hook<TenantSends> turn;  // linked: something is ready

    unsigned waiting() const;  // a bit for each list of `ready` that has sends
};

inline unsigned TenantSends::waiting() const {
    unsigned out = 0;
    for (size_t p = 0; p < priority_count; ++p) out |= (ready[p].empty() ? 0u : 1u) << p;
    return out;
}

struct Recv : Transfer {
    ChunkSet applied;
    std::optional<RecvSpec::Reduce> reduce;
    Weak<Send> forward;
    bool anew = false;           // as are all its grants
    bool needs_grant = false;    // so it is granted again in every generation
    bool grant_pending = false;  // it is in Due::grants
    bool ack_may_wait = false;   // as RecvSpec's
    uint64_t ack_batch = 0;      // of PeerTransfers::ack_batch: our newest range is Due::acks[ack_at]
    size_t ack_at = 0;
    Hook<Recv> of_peer, of_op;
};

struct OpRecord {
    uint64_t serial = 0;
    OpKey key;
    List<Send, &Send::of_op> sends;
    List<Recv, &Recv::of_op> recvs;
};

}  // namespace nexar::link
