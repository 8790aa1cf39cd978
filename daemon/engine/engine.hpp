// Engine: all operations of this node's sessions. It composes groups, collectives, messages, deadlines and
// the membership machines, on the control loop's thread; it carries no bulk itself. Dry: it is given time,
// requests, messages and completions, and acts through the ports.
//
// How it is driven: call one of the input functions, as often as there is input; each ends with everything
// that became ready having run. Clients::complete and group_opened may be called from inside any of them. The
// other ports never call back from inside their functions. Then arrange for on_time(now) at wake_at().
//
// Lifetime: a destroyed engine forgets its ops; whoever destroys it has stopped the meshes and the workers
// first.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/features.hpp"
#include "core/ids.hpp"
#include "core/log.hpp"
#include "core/result.hpp"
#include "core/time.hpp"
#include "engine/clients.hpp"
#include "engine/ports.hpp"
#include "engine/snapshot.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

struct EngineConfig {
    NodeId self;
    Incarnation incarnation;
    std::string hostname;
    std::array<uint8_t, 16> cluster{};
    uint64_t features = known_features();  // of this daemon (core/features.hpp)

    // Of groups that are led from here and whose members do not say. 0: none.
    Timeouts timeouts{Duration{30'000'000'000}, Duration{30'000'000'000}, Duration{30'000'000'000}};
    Duration late_after{1'000'000'000};     // an op older than this is logged once, naming who is missing
    Duration ask_again_max{8'000'000'000};  // then the others are asked again after 1, 2, 4, 8, 8 ... s
    Duration arrival_grace{200'000'000};    // how long the answers to "who has arrived?" are waited for
    Duration announce_after{2'000'000};     // an op older than this tells its descriptor to all nodes
    wire::PlanTableRecord plan = default_plan();  // for groups that this node creates

    // Of the shards, how many carry lanes. Alike on all nodes that share a group: lane l goes through shard l
    // modulo it.
    uint32_t bulk_shards = 1;

    // Failure detection (membership/): a peer silent for `interval` is sent a heartbeat, for `timeout`
    // accused.
    Duration heartbeat_interval{1'000'000'000};
    Duration heartbeat_timeout{5'000'000'000};

    // The key of an open (docs/protocol/rendezvous.md): a SHA-256, which this dry module does not have.
    std::function<wire::GroupKey(const OpenRequest&)> group_key;
    // The host's name of a node, for errors; "": not known. May be empty.
    std::function<std::string(const NodeId&)> host_of;

    size_t groups_max = 4096;
    size_t runs_per_group_max = 16;  // collectives of one group that move data at the same time
    size_t seq_window = 4096;        // of words about collectives further ahead only ends are kept
    // Unexpected messages of a group that one node keeps; its ranks share them evenly as credits. Alike on
    // all nodes that share a group.
    size_t unexpected_per_group_max = 1024;
    size_t early_bytes_per_peer_max = 1 << 20;  // about groups whose commit has not come yet
    size_t finished_groups_max =
        4096;  // remembered, so that late words about them are not kept as early ones

    // Tests only: each switch breaks one thing that a named test must notice.
    struct Sabotage {
        bool skip_descriptor_check = false;
        bool lose_a_wakeup = false;
        bool lose_a_credit = false;
        bool begin_before_filled = false;  // staged segments do not wait for their input
    } sabotage;

    static wire::PlanTableRecord default_plan();
};

struct EnginePorts {
    Clients& clients;
    Workers& workers;
    PeerPort& peers;
    std::vector<MeshPort*> meshes;  // [0]: the control loop's own; [1..]: bulk shards
    Log& log;
};

class Engine final : public Service {
  public:
    Engine(const EngineConfig& config, const EnginePorts& ports, uint64_t seed);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Sessions. A call that returns an error was refused: it consumes no sequence number and gets no
    // completion. Every accepted one gets exactly one complete() or group_opened().
    Result<void> open(Time now, const OpenRequest& request) override;
    Result<void> submit(Time now, const OpRequest& request) override;
    void cancel(Time now, SessionId session,
                uint64_t ticket) override;  // unknown or finished: nothing happens
    void stage(Time now, SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) override;
    Result<void> free_group(Time now, SessionId session, const GroupId& group, uint32_t rank) override;
    // The session's process ended or closed its session. No complete() is called for it any more; its memory
    // is used until its last op is over, and its buffers' keepalives are released then.
    void session_ended(Time now, SessionId session, SessionEnd how, const std::string& reason) override;

    // Peers. A PeerIndex stands for one incarnation of one node, for good. Hello and RosterUpdate are the
    // node's business; given here they only count as a sign of life.
    void on_peer_up(Time now, link::PeerIndex peer, const NodeId& node, const Incarnation& incarnation);
    // Without proof it is a suspicion, and on_peer_up may follow; with proof this life is over.
    void on_peer_down(Time now, link::PeerIndex peer, const std::string& reason, bool proof = false);
    void on_redial_failed(Time now, link::PeerIndex peer);
    void on_received(Time now, link::PeerIndex peer,
                     Duration rtt = {});           // any authenticated packet; 0: no rtt
    void on_sent(Time now, link::PeerIndex peer);  // anything that the peer will authenticate
    void on_message(Time now, link::PeerIndex from, const wire::Message& message);
    // Ends local ops with daemon_lost: the last thing before the node stops. The goodbye to peers is the
    // node's.
    void goodbye(Time now, const std::string& reason);

    // Completions.
    void on_mesh_event(Time now, size_t mesh, const link::MeshEvent& event);
    void on_worker_done(Time now, uint64_t handle);

    void on_time(Time now);
    Time wake_at() const;

    // Introspection.
    Snapshot snapshot(Time now) const;
    void check_invariants() const;      // tests; walks everything
    bool quiet() const;                 // no op, no worker job, no transfer: tests
    uint64_t groups_looked_at() const;  // by all inputs so far: tests of what an input costs

    // A group made without rendezvous: tests. `sessions` are those of this node's ranks, in rank order.
    Result<void> install_group(Time now, const wire::GroupPrepare& group,
                               std::span<const SessionId> sessions);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nexar::engine
