// Engine: all operations of this node's sessions. It composes groups, collectives, messages, deadlines and
// the membership machines. It carries no bulk itself. Dry: its inputs are time, requests, messages and
// completions; its outputs are the ports.
//
// Thread: the control loop's.
// Requires: on_time(now) is called at wake_at(). The meshes and the workers stop before the engine is
// destroyed. Ensures: each input function runs all that it made ready. It may call Clients::complete and
// group_opened. The other ports do not call back from inside their functions.
#pragma once

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
#include "rendezvous/proof.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

struct EngineConfig {
    NodeId self;
    Incarnation incarnation;
    std::string hostname;
    uint64_t features = known_features();  // of this daemon (core/features.hpp)

    // Of groups that this node leads, where no member sets one. 0: none.
    Timeouts timeouts{Duration{30'000'000'000}, Duration{30'000'000'000}, Duration{30'000'000'000}};
    Duration late_after{1'000'000'000};     // an op older than this is logged once, with the missing ranks
    Duration ask_again_max{8'000'000'000};  // then other nodes are asked again after 1, 2, 4, 8, 8 ... s
    Duration arrival_grace{200'000'000};    // at the deadline: the wait for the answers of other nodes
    Duration announce_after{2'000'000};     // an op older than this sends its descriptor to all nodes,
    Duration announce_each{200'000};        // later by this for each node beyond the second (decision 0024)
    wire::PlanTableRecord plan = default_plan();  // for groups that this node creates

    // The number of shards that carry lanes: lane l goes through shard l modulo it. A group uses the fewest
    // of any of its nodes.
    uint32_t bulk_shards = 1;
    // The last mesh of the ports is one more of the control loop's own, for small operations and messages of
    // at least so many bytes [B11]. Requires: both are the same on all nodes.
    bool has_loop_bulk = false;
    uint64_t loop_bulk_min = 48 * 1024;

    // Failure detection (membership/): a heartbeat is sent when nothing was sent for `interval`; a peer from
    // which nothing was received for `timeout` is suspected.
    Duration heartbeat_interval{1'000'000'000};
    Duration heartbeat_timeout{5'000'000'000};

    // What an open's secret becomes, and the proofs that are made from it (docs/protocol/rendezvous.md): this
    // dry module has no cryptography. Without the first one groups cannot be opened.
    std::function<rendezvous::Credentials(const OpenRequest&)> credentials;
    rendezvous::ProofPort proof;
    // The host's name of a node, for errors; "": not known. May be empty.
    std::function<std::string(const NodeId&)> host_of;
    // Whether this node is in a cluster, for errors and hints. Empty: it is.
    std::function<bool()> in_cluster;
    // The time as it passes in a turn of the loop [N16]. Empty: a turn takes none.
    std::function<Time()> clock;
    // Whether a node with a lower NodeId is known, connected or not. Empty: those that were connected.
    std::function<bool()> knows_lower;
    // A rank here has called an operation of this group. May be empty.
    std::function<void(Time now, const GroupId&)> on_request;

    size_t groups_max = 65536;       // a last resort: tenants' limits are below it [N1]
    size_t node_opens_max = 65536;   // opens that are kept for another node [R25]
    size_t runs_per_group_max = 16;  // collectives of one group that move data at the same time
    size_t seq_window = 4096;        // of collectives further ahead only aborts are kept
    // Unexpected messages of a group that one node keeps; the sending ranks share them evenly as credits.
    // Requires: the same on all nodes that share a group.
    size_t unexpected_per_group_max = 1024;
    size_t early_bytes_per_peer_max = 1 << 20;  // about groups whose commit has not arrived
    // Requests that end with their group or session in one turn [G11].
    size_t ends_per_turn_max = 256;
    size_t finished_groups_max = 4096;    // ended groups that are remembered, with their cuts [G9]
    size_t finished_members_max = 65536;  // nodes of these, of all together [G12]

    // Tests only: each switch breaks one rule, and a named test notices.
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
    // [0]: the control loop's own; [1..]: bulk shards; then the one of EngineConfig::has_loop_bulk.
    std::vector<MeshPort*> meshes;
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
    Result<void> abort_group(Time now, SessionId session, const GroupId& group, uint32_t rank,
                             const std::string& reason) override;
    // The session's process ended or closed its session. No complete() follows for it; the pins of its
    // regions end with its last op.
    void session_ended(Time now, SessionId session, SessionEnd how, const std::string& reason) override;
    Regions& regions() override;

    // Peers. A PeerIndex always names the same incarnation of one node. The node handles Hello and
    // RosterUpdate; here they only show that the peer runs.
    void on_peer_up(Time now, link::PeerIndex peer, const NodeId& node, const Incarnation& incarnation);
    // Without proof it is a suspicion, and on_peer_up may follow; with proof this incarnation has ended.
    void on_peer_down(Time now, link::PeerIndex peer, const std::string& reason, bool proof = false);
    void on_redial_failed(Time now, link::PeerIndex peer);
    // Transfers of these groups wait for the peer, and the bulk connection with it is cut off [P13].
    void on_bulk_cut_off(Time now, link::PeerIndex peer, std::span<const GroupId> groups,
                         const std::string& why);
    void on_received(Time now, link::PeerIndex peer,
                     Duration rtt = {});           // any authenticated packet; 0: no rtt
    void on_sent(Time now, link::PeerIndex peer);  // any packet that the peer authenticates
    void on_message(Time now, link::PeerIndex from, const wire::Message& message);
    // Ends local ops with daemon_lost, as the last input. The node itself sends GOODBYE to peers.
    void goodbye(Time now, const std::string& reason);

    // Completions.
    void on_mesh_event(Time now, const link::MeshEvent& event);
    void on_worker_done(Time now, uint64_t handle);

    void on_time(Time now);
    Time wake_at() const;

    // Introspection.
    Snapshot snapshot(Time now) const;  // tests: of all, without a bound
    // Looks at what it shows, within the scope's bounds, and at nothing else [N17].
    Snapshot snapshot(Time now, const SnapshotScope& scope) const;
    // Of a tenant, or of all: groups in which it has a rank here. At no cost.
    size_t groups(const std::optional<TenantName>& own) const;
    size_t collectives() const;  // of all tenants, in flight; Tenant::collectives: of one
    size_t running() const;      // of them: begun, and not over for the ranks here
    // Asks other nodes which ranks have come to the forming groups, first to those of the scope's name;
    // snapshot() then has their answers. `also`: to those alone, beside the inquiry in progress. They have
    // all come when is_inquiring() is false.
    void inquire_forming(Time now, const SnapshotScope& scope, bool also);
    bool is_inquiring() const;
    void check_invariants() const;                     // tests; walks everything
    void set_plan(const wire::PlanTableRecord& plan);  // for groups that this node creates from now on [O6]
    // The next groups of that name, created here, go by size with this limit [O8].
    void set_trial(const std::string& group, uint64_t doubling_bytes_max);
    bool quiet() const;                   // tests: no op, no worker job and no transfer is in flight
    uint64_t groups_visited() const;      // by all inputs so far; for tests of an input's cost
    uint64_t offers_looked_at() const;    // unexpected messages, by receives and probes so far
    uint64_t receives_looked_at() const;  // by messages that came, or were received
    uint64_t cancels_looked_at() const;   // sends and receives, by cancels
    uint64_t creates_looked_at() const;   // to find lists that differ, and by questions; so far
    uint64_t rows_looked_at() const;      // the same for snapshots: ranks, operations, messages, opens

    // A group made without rendezvous: tests. `sessions` are those of this node's ranks, in rank order.
    Result<void> install_group(Time now, const wire::GroupPrepare& group, std::span<const SessionId> sessions,
                               const TenantRef& tenant = {});

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace nexar::engine
