// A bulk shard: one thread with its own UDP socket, TLS objects and QUIC connections, and one
// link::Mesh. Each chunk runs to completion here: receive, authenticate, reduce or copy while it is hot,
// count. The control loop posts commands and takes events; there is no lock between them.
//
// Thread: the public functions belong to the control loop; everything else to the shard's thread.
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
    Duration yield_window{50'000};
};

// Commands, loop to shard; and connections::KnownPeer.
struct DropPeer {  // its node is gone: all its transfers fail
    link::PeerIndex peer;
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
// This node's certificate was renewed. New connections show it; those that stand are replaced within a while.
struct UseIdentity {
    std::shared_ptr<const quic::Identity> identity;
};
using Command = std::variant<std::monostate, connections::KnownPeer, DropPeer, link::Batch, Withdraw, Retract,
                             ForgetGroup, UseIdentity>;

using Event = std::variant<std::monostate, link::MeshEvent, connections::BulkState>;

class Shard {
  public:
    // Binds the socket at once, so that a refused port is an error here; then starts the thread.
    static Result<std::unique_ptr<Shard>> start(ShardConfig config, loop::Wakeup& loop_wakeup);
    ~Shard();  // closes its connections, joins the thread
    Shard(const Shard&) = delete;
    Shard& operator=(const Shard&) = delete;

    quic::Address local_address() const;
    void post(Command command);
    std::optional<Event> poll_event();
    void flush();  // commands that did not fit leave; once per turn of the loop

    uint64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
    uint64_t bytes_received() const { return bytes_received_.load(std::memory_order_relaxed); }

  private:
    class Thread;
    Shard(ShardConfig config, loop::Wakeup& loop_wakeup);

    SpscQueue<Command> commands_{4096};
    Outbox<Command> command_outbox_{commands_};
    SpscQueue<Event> events_{16384};
    Outbox<Event> event_outbox_{events_};  // the shard's side
    // What is full: its emptier wakes the one who waits for room.
    std::atomic<bool> commands_wait_{false}, events_wait_{false};
    loop::Wakeup wakeup_;
    loop::Wakeup* loop_wakeup_;
    std::atomic<bool> stopping_{false};
    std::atomic<uint64_t> bytes_sent_{0}, bytes_received_{0};
    std::unique_ptr<Thread> state_;
    std::thread thread_;
};

}  // namespace nexar::shards
