// Member: owns and connects everything that a node runs: workers, engine, local sessions and, from the moment
// that it is in a cluster, control plane and bulk shards. Before that moment it serves groups of this host,
// and they go on over it. It passes events from one to the other and has no policy.
//
// Thread: the control loop's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "collectives/tuning.hpp"
#include "config/config.hpp"
#include "engine/engine.hpp"
#include "local/server.hpp"
#include "loop/loop.hpp"
#include "loop/wakeup.hpp"
#include "node/addresses.hpp"
#include "node/control_plane.hpp"
#include "node/identity.hpp"
#include "node/loop_bulk.hpp"
#include "node/starts.hpp"
#include "node/token_ledger.hpp"
#include "shards/lending.hpp"
#include "shards/shard.hpp"
#include "workers/pool.hpp"

namespace nexar::node {

struct BulkView {         // of a peer's bulk connection on one shard, or on the control loop
    std::string address;  // the peer's port for it
    bool up = false;
    bool answers = false;  // something has come over it since Member::ask_bulk()
    connections::CarrierKind carrier = connections::CarrierKind::quic;
    std::string carrier_why;  // of QUIC: why not TCP; of none: why
    bool tcp = false;         // both ends carry bulk data over TCP
    std::shared_ptr<link::Traffic> traffic = std::make_shared<link::Traffic>();
};

struct PeerView {  // for nexarctl
    connections::PeerInfo info;
    std::string remote;
    bool up = false;
    Time last_received_at{};
    Time since{};
    std::string why_down;
    std::vector<BulkView> bulk;  // by shard; the last is the control loop's own
};

class Member final : private local::Descriptors, private PlaneListener {
  public:
    struct Needs {
        const config::Config& config;
        NodeId self;              // of the node's key, also before a cluster has certified it
        Incarnation incarnation;  // shown to others in a cluster only, saved by then [K8]
        storage::Port& storage;
        loop::Loop& loop;
        loop::Wakeup& wakeup;
        Log& log;
        std::optional<collectives::Tuning> tuned{};  // of groups that this node creates; none: by size
    };
    // In no cluster: groups of this host's processes.
    static Result<std::unique_ptr<Member>> start(const Needs& needs, Time now);
    struct Entry {
        Identity& identity;  // of Needs::self
        std::function<ResetSecret(uint16_t port)> reset_secret;
        std::string roster;  // the file's content, the addresses to dial first; empty: there is none
    };
    // From here on it is in the cluster. Requires: it was not. An error leaves it as it was.
    Result<void> enter_cluster(Entry entry, Time now);
    bool in_cluster() const { return plane_ != nullptr; }
    ~Member();

    bool step(Time now);  // true: there was work
    // The last step has completed operations, and of bulk on the loop nothing is left to be done at once: the
    // threads that waited may go on before what else there is, such as acknowledgements.
    bool gives_way(Time now);
    Time wake_at() const;
    bool prepare_to_sleep();  // false: work has arrived
    uint32_t bulk_threads() const { return server_->bulk_threads(); }
    void on_woken();

    bool quiet() const { return engine_->quiet(); }
    void say_goodbye(Time now, const std::string& reason);

    engine::Engine& engine() { return *engine_; }
    const Tenants& tenants() const { return tenants_; }
    const local::Server& server() const { return *server_; }
    // Require: in_cluster().
    const Renewer& renewer() const { return *renewer_; }
    const ControlPlane& plane() const { return *plane_; }
    const std::map<PeerIndex, PeerView>& peers() const { return peers_; }
    // Over which bulk connections something comes back: asks all, and `bulk_answers` when all have answered.
    void ask_bulk();
    bool bulk_answers() const;
    // The reason of the last close of a node that is no peer now; empty: it never was one.
    std::string why_departed(const NodeId& node) const;
    const AddressChoices& addresses() const { return addresses_; }
    const NodeId& self() const { return needs_.self; }
    const Incarnation& incarnation() const { return needs_.incarnation; }
    TokenLedger* tokens() { return tokens_.get(); }  // null: this node is no issuer
    wire::PlanTableRecord plan_table() const;
    void set_tuned(std::optional<collectives::Tuning> tuned);               // for groups from now on
    void set_trial(const std::string& group, uint64_t doubling_bytes_max);  // [O8]
    // By the control loop and all shards: with this peer, and with all since the start.
    link::TrafficCounts traffic(PeerIndex peer, const PeerView& view) const;
    link::TrafficCounts traffic() const;
    size_t shard_count() const { return shards_.size(); }
    size_t worker_count() const { return worker_count_; }
    Time started() const { return started_; }

  private:
    class ShardMesh;
    class PlaneRelay;
    class ClientsRelay;

    explicit Member(const Needs& needs);
    void build_engine();
    Result<void> build_server();
    // member_cluster.cpp: what is there in a cluster only.
    Result<void> build_cluster(Entry entry, Time now);
    Result<void> build_plane(Time now, const Entry& entry, const quic::Identity& identity,
                             const quic::Verifier& verifier);
    Result<void> build_shards(const Entry& entry, const quic::Identity& identity,
                              const quic::Verifier& verifier);
    void drop_cluster();
    bool step_cluster(Time now);
    bool end_step_of_cluster(Time now);
    void note_sent(Time now);
    void on_connection(Time now, connections::ControlEvent& event) override;
    void on_message(Time now, PeerIndex from, const wire::Message& message) override;
    void on_mesh_event(Time now, const link::MeshEvent& event) override;
    void on_certificate_renewed(Time now) override { use_new_certificate(now); }
    void peer_is_up(Time now, const connections::PeerIsUp& up);
    void introduce_to_shards(const connections::PeerIsUp& up, PeerView& view);
    void peer_is_down(Time now, const connections::PeerIsDown& down);
    void use_new_certificate(Time now);
    bool read_shards(Time now);
    shards::BulkEndpointConfig endpoint_config(const Entry& entry, const quic::Identity& identity,
                                               const quic::Verifier& verifier, size_t port) const;
    void on_bulk_event(Time now, size_t shard, shards::Event event);
    void on_bulk(Time now, size_t shard, const connections::BulkState& state);
    bool read_workers(Time now);
    void save_roster(Time now);
    void roster_is_saved(Time now);
    void watch(int fd, uint64_t key) override;
    void unwatch(int fd, uint64_t key) override;

    Needs needs_;
    Tenants tenants_;
    Time started_{};
    size_t worker_count_ = 0;
    // In a cluster only; until then empty.
    Identity* identity_ = nullptr;
    quic::Address listen_;
    AddressChoices addresses_;
    std::unique_ptr<TokenLedger> tokens_;      // null: this node is no issuer
    std::unique_ptr<JoinServer> join_server_;  // with tokens_
    std::unique_ptr<Renewer> renewer_;
    admission::LeafTimes leaf_;  // of the certificate that connections show
    std::unique_ptr<ControlPlane> plane_;
    std::vector<std::unique_ptr<shards::Shard>> shards_;
    shards::Lending lending_;  // of the shards

    // The engine's ports to them: they are there before.
    std::unique_ptr<PlaneRelay> plane_relay_;
    std::vector<std::unique_ptr<ShardMesh>> shard_meshes_;
    std::unique_ptr<LoopBulk> loop_bulk_;
    std::unique_ptr<workers::Pool> pool_;
    std::unique_ptr<ClientsRelay> clients_;
    std::unique_ptr<engine::Engine> engine_;
    std::unique_ptr<local::Server> server_;
    std::unique_ptr<loop::Loop::Watch> plane_watch_;
    std::map<uint64_t, std::unique_ptr<loop::Loop::Watch>> session_watches_;
    std::map<PeerIndex, PeerView> peers_;       // until their failure or departure is proved
    std::map<NodeId, std::string> departures_;  // reasons by node, at most departures_max
    bool plane_wants_write_ = false;            // plane_watch_ includes writability
    struct Roster {
        std::string text;                       // the file's content, or what it becomes
        std::optional<storage::Saving> saving;  // in progress
        Time due = never;                       // when to compare the members' addresses with it
        Time free{};                            // it is not saved before
        Time quiet_until{};                     // a failure was logged, and the next ones are not
    } roster_;
};

}  // namespace nexar::node
