// The state behind a Mesh, as its parts share it:
//   Send, Recv   one posted transfer each          Peer     everything about one peer and its channel
//   Tombstones   finished receives of a peer       OpIndex  the transfers of each op; what was withdrawn
// Sending owns what leaves, Receiving what arrives, Inbound cuts streams into frames; mesh.cpp puts them
// together.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "core/check.hpp"
#include "link/containers.hpp"
#include "link/control_log.hpp"
#include "link/early.hpp"
#include "link/frame.hpp"
#include "link/memory_map.hpp"
#include "link/mesh.hpp"

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

struct Peer;
struct OpRecord;

// What a send and a receive have in common.
struct Transfer {
    uint64_t serial = 0;  // 0: in the slab's free list
    uint64_t handle = 0;
    TransferKey key;
    Agreement agreement;
    Class cls = Class::bulk;
    Peer* peer = nullptr;
    OpRecord* op = nullptr;
    MemoryMap memory;
    uint32_t chunk_bytes = 0;
    uint32_t chunks = 0;
    uint32_t finished = 0;  // chunks applied, or acknowledged
    bool mismatch_told = false;
};

struct Send : Transfer {
    ChunkSet queued, flying, acked;  // [W6]; in none of them: not ready
    bool eager = false;              // may go without a grant
    bool granted = false;            // in this generation
    bool tried = false;              // some chunk was sent once, in whatever generation
    Hook<Send> of_peer, of_op, ready;
};

struct Recv : Transfer {
    ChunkSet applied;
    std::optional<RecvSpec::Reduce> reduce;
    Weak<Send> forward;
    bool anew = false;           // as are all its grants
    bool needs_grant = false;    // so it is granted again in every generation
    bool grant_pending = false;  // it is in Peer::grants
    uint64_t ack_batch = 0;      // of Peer::ack_batch: our newest range is acks[ack_at]
    size_t ack_at = 0;
    Hook<Recv> of_peer, of_op;
};

struct OpRecord {
    uint64_t serial = 0;
    OpKey key;
    List<Send, &Send::of_op> sends;
    List<Recv, &Recv::of_op> recvs;
};

// Finished receives that the sender may still ask about (docs/protocol/wire.md, "Tombstones").
class Tombstones {
  public:
    struct Stone {
        uint32_t chunks;
        uint32_t generation;
        uint64_t ack_frame;  // of that generation; carries the last ack
    };
    explicit Tombstones(size_t limit) : limit_(limit) { NEXAR_CHECK(limit > 0); }
    Stone* find(const TransferKey& key) { return stones_.find(key); }
    void add(const TransferKey& key, const Stone& stone);
    void answered(const TransferKey& key, const Stone& stone);  // acked again, by this frame
    void confirm(uint32_t generation, uint64_t acks_seen);
    void new_generation();
    void asks_ended(uint32_t generation);  // what was not asked about is known to be done
    void clear();
    size_t size() const { return stones_.size(); }

  private:
    struct Entry {
        TransferKey key;
        uint32_t generation;
        uint64_t ack_frame;
    };
    void pop(std::deque<Entry>& from);

    size_t limit_;
    FlatMap<TransferKey, Stone, TransferKeyHash> stones_;
    std::deque<Entry> order_;  // of this generation, by ack frame
    std::deque<Entry> old_;    // of earlier ones
};

// One incoming class stream.
struct Stream {
    enum class State : uint8_t { head, data_head, body, payload, skip };
    enum class Sink : uint8_t { drop, copy, stage, stash };
    State state = State::head;
    Sink sink = Sink::drop;
    std::array<std::byte, header_bytes_max> head;
    size_t head_bytes = 0;
    uint64_t left = 0;            // bytes of this frame still to come, after what `head` holds
    DataFrame frame;              // while in payload
    uint32_t got = 0;             // of the payload
    Weak<Recv> recv;              // copy, stage
    std::vector<std::byte> body;  // a message or a list; stash: the chunk
    std::unique_ptr<std::byte[]> stage;
};

struct Peer {
    Peer(PeerIndex i, const MeshConfig& c) : index(i), log(c.log), early(c), tombstones(c.tombstones_max) {}

    PeerIndex index;
    ControlLog log;
    bool resume_due = false;  // the first frame of the log on this connection is not written yet
    uint64_t spoke_in_turn = 0;
    bool log_broken = false;  // the peer broke a rule of the log: it is discarded with the channel
    Channel* channel = nullptr;
    uint32_t generation = 0;
    uint64_t incarnation = 0;
    bool attached_once = false;
    bool incarnation_known = false;
    bool dropped = false;
    bool dirty = false;
    MeshStats stats;
    std::array<Stream, class_count> streams;

    FlatMap<TransferKey, Send*, TransferKeyHash> send_of;
    FlatMap<TransferKey, Recv*, TransferKeyHash> recv_of;
    List<Send, &Send::of_peer> sends;
    List<Recv, &Recv::of_peer> recvs;
    Early early;
    Tombstones tombstones;

    // To be written, control first.
    std::vector<RangeEntry> acks, nacks, asks;
    std::vector<Weak<Recv>> grants;
    std::deque<std::vector<std::byte>> messages;  // whole frames but for their start
    size_t message_bytes = 0;
    uint64_t ack_batch = 1;
    bool asks_end_due = false;
    std::array<List<Send, &Send::ready>, class_count> ready;
    std::array<size_t, class_count> passed_over{};

    uint64_t acks_sent = 0;       // ack frames of this generation
    uint64_t acks_processed = 0;  // the peer's
    uint64_t acks_confirmed = 0;  // the newest acks_processed that we have sent in a header
};

class Shared {
  public:
    explicit Shared(const MeshConfig& c) : config(c) {}

    static constexpr size_t withdrawn_per_group_max = 4096;
    static constexpr size_t groups_forgotten_max = 4096;
    static constexpr uint32_t peers_max = 1u << 20;

    Peer& peer(PeerIndex index);
    Peer* find_peer(PeerIndex index);
    void touch(Peer& peer);  // it has something to write

    OpRecord& op_record(const OpKey& op);
    OpRecord* find_op(const OpKey& op);
    void release_if_empty(OpRecord& op);
    bool is_gone(const OpKey& op) const;  // withdrawn, or its group was forgotten
    void remember_withdrawn(const OpKey& op);
    void remember_forgotten(const GroupId& group);

    void emit(MeshEvent::Kind kind, uint64_t handle, Peer& peer, const TransferKey& key);
    void tell_mismatch(Transfer& t, const Agreement& theirs);
    bool is_eager(Class cls, size_t bytes) const {
        return cls != Class::bulk && bytes <= config.eager_bytes_max;
    }
    void discard_log(Peer& peer, const std::string& why);  // from this side
    void report_room(Peer& peer);                          // if somebody waits for it
    void log_discarded(Peer& peer, const std::string& why, bool by_peer);
    FrameStart start_of(Peer& peer, FrameKind kind, uint64_t bytes_of_frame);

    std::unique_ptr<std::byte[]> take_stage();
    void give_stage(std::unique_ptr<std::byte[]> stage) {
        if (stage) stages_.push_back(std::move(stage));
    }

    const MeshConfig config;
    std::deque<MeshEvent> events;
    Slab<Send> sends;
    Slab<Recv> recvs;
    std::vector<Peer*> dirty;
    uint64_t turn = 1;  // ends with flush()
    std::vector<std::unique_ptr<Peer>> peers;

  private:
    struct Withdrawn {
        std::set<OpKey> ops;
        std::deque<OpKey> order;
    };
    Slab<OpRecord> op_records_;
    FlatMap<OpKey, OpRecord*, OpKeyHash> ops_;
    std::unordered_map<GroupId, Withdrawn> withdrawn_;
    std::set<GroupId> forgotten_;
    std::deque<GroupId> forgotten_order_;
    std::vector<std::unique_ptr<std::byte[]>> stages_;
};

}  // namespace nexar::link
