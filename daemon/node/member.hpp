// Member: everything a node runs while it is in a cluster, wired together: control plane, bulk shards,
// workers, engine, local sessions. The only place that knows them all; it passes events from one to the other
// and decides nothing.
//
// Thread: the control loop's.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "config/config.hpp"
#include "engine/engine.hpp"
#include "local/server.hpp"
#include "loop/loop.hpp"
#include "loop/wakeup.hpp"
#include "node/addresses.hpp"
#include "node/control_plane.hpp"
#include "node/identity.hpp"
#include "shards/shard.hpp"
#include "workers/pool.hpp"

namespace nexar::node {

struct PeerView {  // for people
    connections::PeerInfo info;
    std::string remote;
    bool up = false;
    bool bulk_up = false;
    Time last_received_at{};
    Time since{};
    std::string why_down;
};

class Member final : private local::Descriptors {
  public:
    struct Needs {
        const config::Config& config;
        Identity& identity;
        const StateDir& state;
        loop::Loop& loop;
        loop::Wakeup& wakeup;
        Log& log;
        std::vector<std::string> seeds;  // addresses to dial first
    };
    static Result<std::unique_ptr<Member>> start(const Needs& needs, Time now);
    ~Member();

    bool step(Time now);  // true: something happened
    Time wake_at() const;
    bool prepare_to_sleep();  // false: work has come meanwhile
    void on_woken();

    bool quiet() const { return engine_->quiet(); }
    void say_goodbye(Time now, const std::string& reason);

    engine::Engine& engine() { return *engine_; }
    const local::Server& server() const { return *server_; }
    const Renewer& renewer() const { return *renewer_; }
    const ControlPlane& plane() const { return *plane_; }
    const std::map<PeerIndex, PeerView>& peers() const { return peers_; }
    std::string why_departed(
        const NodeId& node) const;  // of one that is no peer at the moment; empty: never was
    const AddressChoices& addresses() const { return addresses_; }
    const Incarnation& incarnation() const { return incarnation_; }
    wire::PlanTableRecord plan_table() const;
    uint64_t bulk_bytes_sent() const;
    uint64_t bulk_bytes_received() const;
    size_t shard_count() const { return shards_.size(); }
    size_t worker_count() const { return worker_count_; }
    Time started() const { return started_; }

  private:
    class ShardMesh;
    class ClientsRelay;

    explicit Member(const Needs& needs);
    Result<void> build(Time now);
    Result<void> build_plane(Time now, const quic::Identity& identity, const quic::Verifier& verifier);
    Result<void> build_shards(const quic::Identity& identity, const quic::Verifier& verifier);
    void build_engine();
    Result<void> build_server();
    void read_plane(Time now);
    void on_plane(Time now, PlaneEvent event);
    void peer_is_up(Time now, const connections::PeerIsUp& up);
    void introduce_to_shards(const connections::PeerIsUp& up);
    void peer_is_down(Time now, const connections::PeerIsDown& down);
    void use_new_certificate(Time now);
    bool read_shards(Time now);
    bool read_workers(Time now);
    void save_roster(Time now);
    void watch(int fd, uint64_t key) override;
    void unwatch(int fd, uint64_t key) override;

    Needs needs_;
    quic::Address listen_;
    AddressChoices addresses_;
    Incarnation incarnation_;
    Time started_{};
    size_t worker_count_ = 0;
    std::unique_ptr<JoinServer> join_server_;
    std::unique_ptr<Renewer> renewer_;
    admission::LeafTimes leaf_;  // of the certificate that connections show
    std::unique_ptr<ControlPlane> plane_;
    std::vector<std::unique_ptr<shards::Shard>> shards_;
    std::vector<std::unique_ptr<ShardMesh>> shard_meshes_;
    std::unique_ptr<workers::Pool> pool_;
    std::unique_ptr<ClientsRelay> clients_;
    std::unique_ptr<engine::Engine> engine_;
    std::unique_ptr<local::Server> server_;
    std::unique_ptr<loop::Loop::Watch> plane_watch_;
    std::map<uint64_t, std::unique_ptr<loop::Loop::Watch>> session_watches_;
    std::map<PeerIndex, PeerView> peers_;
    std::map<NodeId, std::string> departures_;
    bool plane_wants_write_ = false;
    std::string roster_saved_;  // as the file holds it
    Time roster_due_ = never;   // when to look whether it has changed
    Time roster_free_{};        // not written again before
};

}  // namespace nexar::node
