// Mesh: all the links of one thread, and the transfers on them: a TransferTable and the StreamCarrier that
// moves its chunks. There is one in the control loop, for messages and small data, and one in each bulk
// shard. Dry: it is given bytes and gives bytes back through Channels; its events are collected with
// poll_event(). It never blocks a stream: what has no home is refused and sent again (NACK).
//
// Thread: the one that drives it. After withdraw() has returned, no memory of that op is touched
// again.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/bytes.hpp"
#include "link/channel.hpp"
#include "link/event.hpp"
#include "link/mesh_config.hpp"
#include "link/traffic.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

// A batch is everything an op posts at one moment: receives first, so that the grants leave in one frame per
// peer.
struct Batch {
    Vector<RecvSpec> recvs;         // handle of recvs[i] = first_handle + i
    Vector<SendSpec> sends;         // handle of sends[i] = first_handle + recvs.size() + i
    uint64_t first_handle = 0;      // allotted by the engine, never reused
    bool awaited_together = false;  // nobody needs the end of one before all have ended
};

struct MeshStats : TransferStats {
    uint64_t bytes_sent = 0, bytes_received = 0;  // payload of data frames
};

class Mesh {
  public:
    explicit Mesh(const MeshConfig& config);
    ~Mesh();

    // Channels. attach() with a higher generation replaces a broken channel: grants with applied-bitmaps are
    // exchanged again and the rest moves [W6]. Both ends must give one channel the same generation; the same
    // or a lower one than before is our bug, unless the peer was dropped. The channel stays until the next
    // attach, detach, drop, or peer_garbage (which detaches by itself). detach() keeps transfers waiting for
    // a new channel; drop_peer() fails every transfer with that peer, and every later post, until the next
    // attach().
    void attach(PeerIndex peer, uint32_t generation, Channel& channel);
    void detach(PeerIndex peer);
    void drop_peer(PeerIndex peer);

    // Input. Only flush(), on_room(), send_message() and append() write to channels and, when very many acks
    // are due, on_bytes() and post().
    void on_bytes(PeerIndex peer, Class cls, Bytes bytes);
    // Where the next bytes of a payload of the class belong; empty: on_bytes() takes them. Valid until the
    // next call to the mesh, which is placed() when they are there.
    MutableBytes place(PeerIndex peer, Class cls);
    void placed(PeerIndex peer, Class cls, size_t bytes);
    void on_room(PeerIndex peer);  // the channel has more room than before
    void post(Batch batch);
    void withdraw(const OpKey& op);  // all transfers of the op fail now; later frames for it are dropped
    // Its receives fail now, its sends stay. A receive may be posted again (RecvSpec::anew), unless the op
    // was withdrawn.
    void retract(const OpKey& op);
    void forget_group(const GroupId& group);  // the group is gone, with all that came early for it
    // A message about this connection or this moment, outside the log. False: this peer's queue is over its
    // limit, or it has no channel.
    bool send_message(PeerIndex peer, Bytes message);
    // The control log [L1]-[L9]: applied by the peer once and in order, unless its incarnation ends or the
    // log is discarded. With an account: charged to what was reserved for it.
    void append(PeerIndex peer, Bytes message, std::optional<Account> account);
    bool reserve(PeerIndex peer, Account account, size_t bytes);
    bool reserve_open(PeerIndex peer, Account account, size_t bytes);
    LogRoom log_room(PeerIndex peer) const;
    void release(PeerIndex peer, Account account, size_t bytes);
    void discard_log(PeerIndex peer, const std::string& why);  // it holds what nobody can apply
    const ControlLog* log_of(PeerIndex peer) const;            // null: no such peer
    // Acks and grants collected so far leave; called once per turn of its thread. With a time: acks that no
    // sender awaits may wait for more [T6], until acks_due() at most.
    void flush();
    void flush(Time now);
    Time acks_due() const;  // never: no ack waits

    // What waits: transfers that have not ended.
    bool has_transfers() const;
    bool waits_for(PeerIndex peer) const;
    std::vector<GroupId> groups_waiting_for(PeerIndex peer) const;  // each once

    // Output.
    std::optional<MeshEvent> poll_event();
    MeshStats stats(PeerIndex peer) const;
    TrafficCounts traffic(PeerIndex peer) const;
    std::shared_ptr<const Traffic> traffic() const;  // with all peers; any thread may read it
    // From now on what is exchanged with this peer is counted there, where others may read it.
    void count_in(PeerIndex peer, std::shared_ptr<Traffic> traffic);
    void check_invariants() const;  // for tests; walks everything

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nexar::link
