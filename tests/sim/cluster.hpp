// Cluster: simulated hosts, each with the production Engine (with its detector and arbiter), two Meshes for
// the control loop and one for a bulk shard, workers that finish late and out of order; ranks are driven by
// the test. All of it in virtual time. An `error` log line, an engine's complaint about a peer, or a
// completion that comes twice fails.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "engine/engine.hpp"
#include "network.hpp"
#include "staged.hpp"
#include "wire_mode.hpp"

namespace nexar::local {
class SessionCore;
}

namespace nexar::sim {

struct ClusterShape {
    uint32_t nodes = 2;
    NetworkShape network;
    Duration worker_delay{30us};
    Duration shard_hop{3us};
    Duration move_delay{50us};  // until a staged call moves what it can
    link::MeshConfig mesh;
    engine::EngineConfig engine;
    TenantLimits tenants;  // of each host
    wire::PlanTableRecord plan = engine::EngineConfig::default_plan();
    Duration collective_timeout{30s};
    Duration barrier_timeout{30s};
    std::map<uint32_t, Capabilities> capabilities;  // by identity; of the others: this build's
    bool tcp_bulk = false;                          // bulk connections over TCP as well (nodes.hpp)
    bool connected = true;  // false: nodes find each other by their peer tables (nodes.hpp)
};

// One operation of one rank, from submit to its end. When it completes, its result is taken and its memory
// poisoned: who still reads there gets wrong values, and who writes there is found at the end of the test.
struct Call {
    bool accepted = false, ended = false;
    engine::Outcome outcome;
    Time submitted, finished;
    std::shared_ptr<std::vector<std::byte>> in, out;
    uint64_t result_at = 0, result_bytes = 0;  // in `out`
    std::vector<std::byte> out_at_end;
    std::shared_ptr<StagedMemory> staged;  // or none; `windows`: what it lends
    std::shared_ptr<const void> windows[2];
    uint32_t stage_done = 0;
    bool move_due = false;
    bool ok() const { return ended && outcome.error.code == Errc::ok; }
    void end(const engine::Outcome& how, Time now);
    bool is_poisoned() const;
};

class Cluster;

class Host final : engine::Clients, engine::Workers, engine::PeerPort {
  public:
    Host(Cluster& cluster, uint32_t index, uint32_t identity, uint64_t counter = 1);
    ~Host();

    NodeId id;
    std::string hostname() const { return "host" + std::to_string(index_); }
    Incarnation incarnation;
    bool dead = false;
    Tenants tenants;
    std::unique_ptr<engine::Engine> engine;
    std::vector<std::unique_ptr<link::Mesh>> meshes;
    std::map<std::pair<uint64_t, uint64_t>, Call*> calls;  // by session and ticket
    uint64_t next_ticket = 1;
    std::map<std::pair<uint64_t, uint64_t>, Result<engine::GroupInfo>> opened;
    std::map<std::pair<uint64_t, uint64_t>, Time> opened_at;  // when it was answered
    std::map<uint64_t, local::SessionCore*> cores;  // sessions that speak through shared memory (app.hpp)
    std::function<bool(link::PeerIndex, const wire::Message&)> table;  // sees messages first (nodes.hpp)
    std::function<void()> after_flush;                                 // of the loop's own mesh (nodes.hpp)
    std::function<void(link::PeerIndex)> on_append, on_arrival;  // of a message of the control log; or none
    std::function<void(link::PeerIndex)> close;  // the connection, after its control log was discarded
    void schedule_pump(size_t mesh);
    void schedule_acks(size_t mesh);

    void pump(size_t mesh);
    void after_input();

  private:
    friend class Cluster;
    class Port;
    void complete(SessionId session, uint64_t ticket, const engine::Outcome& outcome) override;
    void group_opened(SessionId session, uint64_t ticket, const Result<engine::GroupInfo>& info) override;
    void stage_done(SessionId session, uint64_t ticket, uint32_t done) override;
    void submit(engine::WorkerJob job) override;
    void send(link::PeerIndex peer, Bytes message) override;
    void append(link::PeerIndex peer, Bytes message, std::optional<link::Account> account) override;
    bool reserve(link::PeerIndex peer, link::Account account, size_t bytes) override;
    bool reserve_open(link::PeerIndex peer, link::Account account, size_t bytes) override;
    link::LogRoom log_room(link::PeerIndex peer) const override { return meshes[0]->log_room(peer); }
    void release(link::PeerIndex peer, link::Account account, size_t bytes) override;
    void discard_log(link::PeerIndex peer, const std::string& why) override;
    void on_message(const link::MeshEvent& event);
    void on_event(const link::MeshEvent& event);
    void move_soon(std::pair<uint64_t, uint64_t> call);

    Cluster& cluster_;
    uint32_t index_;
    std::unique_ptr<Log> log_;
    std::vector<std::unique_ptr<Port>> ports_;
    std::vector<bool> pump_scheduled_, acks_scheduled_;
    Time woken_at_ = never;
};

struct SimGroup {
    GroupId id;
    std::vector<uint32_t> placement;  // host of each rank
    std::vector<SessionId> sessions;  // of each rank
    uint32_t size() const { return static_cast<uint32_t>(placement.size()); }
};

class Cluster {
  public:
    Cluster(uint64_t seed, const ClusterShape& shape);
    ~Cluster();

    Clock clock;
    const ClusterShape shape;
    std::vector<std::unique_ptr<Host>> hosts;
    std::vector<std::string> errors;    // must stay empty: check() asserts it
    std::vector<std::string> warnings;  // names of warn events

    // `plans`: hosts that have another plan table than the shape's.
    // `shared`: all ranks of a host are of one session. `sessions`: of each rank, which may have other
    // groups.
    SimGroup make_group(std::vector<uint32_t> placement,
                        const std::map<uint32_t, wire::PlanTableRecord>& plans, bool shared = false,
                        const std::vector<SessionId>& sessions = {});
    SimGroup make_group(std::vector<uint32_t> placement) { return make_group(std::move(placement), {}); }
    // A daemon more: another node, or a later incarnation of one. It has no channels yet.
    uint32_t add_host(uint32_t identity, uint64_t counter) {
        const auto index = static_cast<uint32_t>(hosts.size());
        hosts.push_back(std::make_unique<Host>(*this, index, identity, counter));
        return index;
    }
    bool tcp_bulk() const {
        const WireMode mode = wire_mode();
        return shape.tcp_bulk || mode == WireMode::tcp || mode == WireMode::switching;
    }
    Capabilities capabilities_of(uint32_t identity) const {
        const auto own = shape.capabilities.find(identity);
        return own == shape.capabilities.end() ? Capabilities{} : own->second;
    }
    SessionId new_session() { return SessionId(next_session_++); }
    // By the production rendezvous: one open of a new session on a host. Answers are in Host::opened.
    struct Open {
        uint32_t host = 0;
        SessionId session;
        uint64_t ticket = 0;
        Result<void> accepted;
    };
    Open open(uint32_t host, const std::string& name, uint32_t size, int64_t rank,
              const std::string& secret = "s", Duration timeout = Duration{30s}, uint32_t uid = 1000);
    const Result<engine::GroupInfo>* answer(const Open& open) const;

    // In and out are fresh memory: `in` as given, `out` of so many bytes. In place: out == in.
    // A staged side of `words` has its memory already, and `staged` moves its bytes.
    Call& submit(const SimGroup& group, uint32_t rank, const engine::OpRequest& words,
                 std::vector<std::byte> in, size_t out_bytes, bool in_place = false,
                 std::shared_ptr<StagedMemory> staged = {});
    void cancel(const SimGroup& group, uint32_t rank, const Call& call);
    Result<void> free_group(const SimGroup& group, uint32_t rank);
    Result<void> abort_group(const SimGroup& group, uint32_t rank, const std::string& reason);
    void end_session(const SimGroup& group, uint32_t rank, bool crashed = true);
    void end_session(const SimGroup& group, uint32_t rank, engine::SessionEnd how);

    // Runs until all calls so far of running ranks have ended and nothing is in flight, or virtual time is
    // up.
    bool run(Duration limit = 60s);
    void run_for(Duration time);
    int to_be_submitted = 0;  // calls that a program will make later: run() waits for them too

    // Faults.
    void break_channel(uint32_t a, uint32_t b, Duration down_for);
    void block(uint32_t from, uint32_t to, bool blocked);  // one way
    void block_bulk(uint32_t from, uint32_t to);           // one way, and the control channel stays
    void kill(uint32_t host, bool seen_at_once);           // the daemon and all its processes

    size_t moves = 0;  // of bulk connections to the other carrier (wire_mode.hpp)

    uint64_t bytes_sent(uint32_t from, uint32_t to) const;
    link::MeshStats stats(uint32_t from, uint32_t to) const;
    bool all_ended() const;
    std::string unfinished() const;
    std::string state() const;  // of every node: for people who look for a bug
    // No errors, no call ended twice, no memory written after its call had ended.
    void check() const;

  private:
    friend class Host;
    struct Link {
        std::vector<std::unique_ptr<Pipe>> pipes;  // by mesh
        bool up = false, blocked = false, bulk_blocked = false;
        bool bulk_over_tcp = false;
    };
    void connect(uint32_t a, uint32_t b);
    void make_pipes(uint32_t from, uint32_t to);
    std::unique_ptr<Pipe> make_pipe_of(uint32_t from, uint32_t to, size_t mesh);
    void maybe_move(uint32_t at);
    void move_bulk(uint32_t a, uint32_t b);
    Link& link(uint32_t from, uint32_t to) { return links_[from * shape.nodes + to]; }

    std::vector<Link> links_;
    std::vector<std::unique_ptr<Pipe>> retired_;
    std::vector<uint32_t> generations_;
    std::deque<Call> calls_;
    std::set<const Call*> abandoned_;  // of sessions that have ended
    uint64_t next_session_ = 1, next_group_ = 1;
    Random moves_{1};  // of its own: what else a seed means stays as it is
    Time next_move_{};
};

// The control loop's, the shard's, and the loop's second one, which engines use where
// EngineConfig::has_loop_bulk says so.
constexpr size_t meshes_per_host = 3;

}  // namespace nexar::sim
