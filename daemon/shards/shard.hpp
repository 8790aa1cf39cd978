// Shard: a bulk shard, one thread with its own UDP and TCP sockets, TLS objects, connections and link::Mesh.
// Each chunk runs to completion on it: receive, authenticate, reduce or copy while the chunk is in the cache,
// count. The control loop posts commands and polls events; there is no lock between them.
//
// Thread: the public functions belong to the control loop, Shard::Thread to the shard's thread.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <variant>

#include "connections/bulk.hpp"
#include "core/spsc_queue.hpp"
#include "link/mesh.hpp"
#include "loop/wakeup.hpp"
#include "quic/endpoint.hpp"
#include "transport/tcp_carrier.hpp"

namespace nexar::shards {

struct ShardConfig {
    uint16_t number = 0;  // from 0; it dials the peers' shard of the same number
    quic::Address listen;
    quic::Config quic;
    quic::Identity identity;
    quic::Verifier verifier;
    NodeId self;
    Incarnation incarnation;
    link::MeshConfig mesh;
    std::optional<std::array<std::byte, 32>> reset_secret;
    connections::BulkWatchConfig watch;
    Duration yield_window{50'000};
    uint32_t* at_work = nullptr;         // counts the shard while it has transfers that move (AtWork)
    Duration stalled_after{10'000'000};  // without work: they wait for something else than this shard
    bool tcp = false;                    // bulk data over TCP as well, on the same port
    bool tcp_plain = false;              // and without encryption, where the other end wants that too
};

// Commands from the control loop to the shard; connections::KnownPeer is one more.
struct DropPeer {  // the peer's node failed or departed: all transfers with it fail
    link::PeerIndex peer;
    NodeId node{};
    Incarnation incarnation{};
};
struct Withdraw {
    link::OpKey op;
};
struct Retract {
    link::OpKey op;
};
struct ForgetGroup {
    GroupId group;
};
// This node's certificate was renewed. New connections show the new one; open connections are replaced.
struct UseIdentity {
    std::shared_ptr<const quic::Identity> identity;
};
// What connections over TCP to and from this peer prove themselves with: from its control connection. Posted
// before the KnownPeer of the same connection.
struct UseAttachKey {
    transport::TcpCarrier::Peer peer;
};
struct AskPeers {};  // which connections work: BulkConnections::ask_all()
using Command = std::variant<std::monostate, connections::KnownPeer, DropPeer, link::Batch, Withdraw, Retract,
                             ForgetGroup, UseIdentity, UseAttachKey, AskPeers>;

// Newcomers over TCP wait, as no descriptor is left for them; or they are accepted again.
struct AcceptPause {
    bool begins;
};
using Event = std::variant<std::monostate, link::MeshEvent, connections::BulkState, AcceptPause>;

class Shard {
  public:
    // Binds the socket before it starts the thread, so that a refused port is this call's error.
    static Result<std::unique_ptr<Shard>> start(ShardConfig config, loop::Wakeup& loop_wakeup);
    ~Shard();  // closes its connections, joins the thread
    Shard(const Shard&) = delete;
    Shard& operator=(const Shard&) = delete;

    quic::Address local_address() const;
    void post(Command command);
    std::optional<Event> poll_event();
    void flush();  // moves commands that found the queue full; Requires: called in each turn of the loop

    // With all peers; those of one peer: KnownPeer::traffic. The shard counts in place, and is not asked.
    link::TrafficCounts traffic() const { return traffic_->read(); }

  private:
    class Thread;
    Shard(ShardConfig config, loop::Wakeup& loop_wakeup);

    SpscQueue<Command> commands_{4096};
    Outbox<Command> command_outbox_{commands_};
    SpscQueue<Event> events_{16384};
    Outbox<Event> event_outbox_{events_};  // the shard's side
    // The outbox holds what found the queue full: the consumer wakes the producer when it has made room.
    std::atomic<bool> commands_wait_{false}, events_wait_{false};
    loop::Wakeup wakeup_;        // wakes the shard
    loop::Wakeup* loop_wakeup_;  // wakes the control loop
    std::atomic<bool> stopping_{false};
    std::unique_ptr<Thread> state_;  // everything that only the shard's thread uses
    std::shared_ptr<const link::Traffic> traffic_;
    std::thread thread_;
};

}  // namespace nexar::shards
