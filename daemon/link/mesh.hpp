// Mesh: all the links of one thread, and the transfers on them. There is one in the control loop, for
// messages and small data, and one in each bulk shard. Dry: it is given bytes and gives bytes back through
// Channels; its events are collected with poll_event(). It never blocks a stream: what has no home is refused
// and sent again (NACK).
//
// Thread: whichever drives it, one at a time. After withdraw() has returned, no memory of that op is touched
// again.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "link/channel.hpp"
#include "link/control_log.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

struct MeshConfig {
    uint64_t incarnation = 0;            // of this node; in every header
    size_t eager_bytes_max = 16 * 1024;  // a transfer up to this size is sent without waiting for its grant
    size_t eager_room_per_group = 256 * 1024;  // stash per (peer, group); beyond it: NACK
    size_t eager_groups_max = 1024;            // groups with a stash per peer
    size_t early_bytes_max = 16 << 20;         // stash and wanted grants of all groups together, per peer
    size_t message_bytes_max = 1 << 20;        // one message (Cap'n Proto)
    size_t grants_unclaimed_max = 65536;       // grants kept for sends that were not posted yet, per peer
    size_t grants_per_group_max = 16384;       // the same, per (peer, group)
    size_t wanted_per_group_max = 4096;        // refused transfers remembered until their receive is posted
    size_t message_queue_bytes_max = 4 << 20;  // messages waiting for room in the channel, per peer
    size_t class_floor_bytes = 1 << 20;  // a class passed over by this much of higher ones sends one chunk
    size_t tombstones_max = 65536;       // finished receives that the sender has not confirmed, per peer
    bool has_log = false;                // the control loop's mesh: it carries the control log with each peer
    ControlLogConfig log;
    // Tests only: each switch breaks one thing that a named test must notice (docs/protocol/wire.md,
    // sabotage).
    struct Sabotage {
        bool apply_chunk_twice = false;
        bool no_deduplication = false;
        bool skip_descriptor_check = false;
        bool skip_grant = false;
    } sabotage;
};

// A batch is everything an op posts at one moment: receives first, so that the grants leave in one frame per
// peer.
struct Batch {
    std::vector<RecvSpec> recvs;  // handle of recvs[i] = first_handle + i
    std::vector<SendSpec> sends;  // handle of sends[i] = first_handle + recvs.size() + i
    uint64_t first_handle = 0;    // allotted by the engine, never reused
};

struct MeshEvent {
    enum class Kind : uint8_t {
        done,      // transfer `handle`: recv: all chunks applied; send: all chunks acked
        failed,    // transfer `handle`: withdrawn, or its peer detached for good; memory is free. `text`: or
                   // it was never begun, and why
        mismatch,  // a peer's header disagrees with ours [W4]: `key`, `peer`, `theirs`; the op is not harmed
                   // yet
        message,   // a whole message from `peer`: `bytes`. A `logged` one counts as applied once it is
                   // polled: its owner applies it before the next flush() [L3]
        log_discarded,  // [L7] what waited in the log with `peer` is lost. `by_peer`: the peer began it
                        // anew; otherwise the connection is to be closed, `text` says why
        log_room,       // a reserve() for `peer` failed, and may succeed now
        peer_garbage,   // `peer` sent something that breaks the protocol: close its channel; `text` says what
    };
    Kind kind;
    uint64_t handle = 0;
    PeerIndex peer;
    TransferKey key;
    Agreement theirs;
    std::vector<std::byte> bytes;
    std::string text;
    bool logged = false, by_peer = false;
};

struct MeshStats {
    uint64_t bytes_sent = 0, bytes_received = 0;  // payload of data frames
    uint64_t chunks_applied = 0, chunks_duplicate = 0, nacks_sent = 0, nacks_received = 0, grants_sent = 0;
    // What is kept for this peer now, each below its limit [W8].
    uint64_t tombstones = 0, stash_bytes = 0, early_bytes = 0, grants_unclaimed = 0;
};

class Mesh {
  public:
    explicit Mesh(const MeshConfig& config);
    ~Mesh();

    // Channels. attach() with a higher generation replaces a broken channel: grants with applied-bitmaps are
    // exchanged again and the rest moves [W6]. Both ends must give one channel the same generation; the same
    // or a lower one than before is our bug, unless the peer was dropped. The channel lives until the next
    // attach, detach, drop, or peer_garbage (which detaches by itself). detach() keeps transfers waiting for
    // a new channel; drop_peer() fails every transfer with that peer, and every later post, until the next
    // attach().
    void attach(PeerIndex peer, uint32_t generation, Channel& channel);
    void detach(PeerIndex peer);
    void drop_peer(PeerIndex peer);

    // Input. Only flush(), on_room(), send_message() and, when very many acks are due, on_bytes() write to
    // channels.
    void on_bytes(PeerIndex peer, Class cls, Bytes bytes);
    void on_room(PeerIndex peer);  // the channel has more room than before
    void post(Batch batch);
    void withdraw(const OpKey& op);  // all transfers of the op fail now; later frames for it are dropped
    // Its receives fail now, its sends stay. A receive may be posted again (RecvSpec::anew), unless the op
    // was withdrawn.
    void retract(const OpKey& op);
    void forget_group(const GroupId& group);  // the group is gone: its stash and grants too
    // A message about this connection or this moment, outside the log. False: this peer's queue is over its
    // limit, or it has no channel.
    bool send_message(PeerIndex peer, Bytes message);
    // The control log [L1]-[L9]: applied by the peer once and in order, unless its incarnation ends or the
    // log is discarded. With an account: charged to what was reserved for it.
    void append(PeerIndex peer, Bytes message, std::optional<Account> account);
    bool reserve(PeerIndex peer, Account account, size_t bytes);
    void release(PeerIndex peer, Account account, size_t bytes);
    void discard_log(PeerIndex peer, const std::string& why);  // it holds what nobody can apply
    const ControlLog* log_of(PeerIndex peer) const;            // null: no such peer
    void flush();  // acks and grants collected so far leave; called once per turn of whoever drives it

    // Output.
    std::optional<MeshEvent> poll_event();
    MeshStats stats(PeerIndex peer) const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nexar::link
