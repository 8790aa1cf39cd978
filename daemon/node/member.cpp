// See member.hpp.
#include "node/member.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "core/cores.hpp"
#include "engine/records.hpp"
#include "local/bus_guard.hpp"
#include "node/group_key.hpp"
#include "node/member_ports.hpp"

namespace nexar::node {

// Passes the engine's results to the server, which is built after the engine.
class Member::ClientsRelay final : public engine::Clients {
  public:
    local::Server* server = nullptr;
    void complete(SessionId session, uint64_t ticket, const engine::Outcome& outcome) override {
        if (server) server->complete(session, ticket, outcome);
    }
    void group_opened(SessionId session, uint64_t ticket, const Result<engine::GroupInfo>& info) override {
        if (server) server->group_opened(session, ticket, info);
    }
    void stage_done(SessionId session, uint64_t ticket, uint32_t done) override {
        if (server) server->stage_done(session, ticket, done);
    }
};

namespace {
// A region takes two, while it is registered a few more.
uint64_t descriptors_max() {
    rlimit limit{};
    return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

TenantLimits tenant_limits(const config::Config& config) {
    TenantLimits limits;
    limits.total(Resource::sessions) = config.sessions_max;
    limits.total(Resource::regions) = std::min<uint64_t>(config.regions_max, descriptors_max() / 3);
    limits.total(Resource::region_bytes) = config.region_bytes_max;
    limits.total(Resource::groups) = config.groups_max;
    limits.total(Resource::scratch_bytes) = config.scratch_bytes_max;
    limits.total(Resource::requests) = config.requests_max;
    limits.share_percent = config.user_share_percent;
    return limits;
}
}  // namespace

Member::Member(const Needs& needs)
    : needs_(needs), tenants_(tenant_limits(needs.config)), lending_([this] { return engine_->running(); }) {}

Result<std::unique_ptr<Member>> Member::start(const Needs& needs, Time now) {
    std::unique_ptr<Member> member(new Member(needs));
    member->started_ = now;
    member->worker_count_ =
        needs.config.workers ? needs.config.workers : std::max<size_t>(1, usable_cores() - 1);
    member->pool_ = std::make_unique<workers::Pool>(member->worker_count_, needs.wakeup);
    NEXAR_TRY_VOID(member->pool_->made());
    member->build_engine();
    NEXAR_TRY_VOID(member->build_server());
    return member;
}

// Bulk endpoints and workers stop before the server unmaps the sessions' memory, which they use; the plane is
// there until the engine has gone.
Member::~Member() {
    local::BusGuard::wake_at_faults(nullptr);
    session_watches_.clear();
    plane_watch_.reset();
    lending_.clear();
    shards_.clear();
    for (const auto& mesh : shard_meshes_) mesh->shard = nullptr;
    if (loop_bulk_) loop_bulk_->close(loop::Loop::now());
    pool_.reset();
    if (clients_) clients_->server = nullptr;
    server_.reset();
    engine_.reset();
    drop_cluster();
}

wire::PlanTableRecord Member::plan_table() const {
    const config::Config& config = needs_.config;
    collectives::PlanTable table;
    table.small_bytes_max = std::min(config.small_message_bytes, config.pipeline_segment_bytes);
    if (needs_.tuned && needs_.tuned->doubling_bytes_max > 0)
        table.doubling_bytes_max = needs_.tuned->doubling_bytes_max;
    table.doubling_bytes_max = std::min(table.doubling_bytes_max, table.small_bytes_max);
    table.segment_bytes = config.pipeline_segment_bytes;
    if (needs_.tuned) table.model = needs_.tuned->model;
    table.large_message_bytes = config.large_message_bytes;
    table.ring_nodes_max = static_cast<uint32_t>(config.ring_max_world);
    table.family = collectives::family_named(config.algorithms);
    // What was neither tuned nor configured goes by size, as it did before there was a model.
    const bool has_rules = table.large_message_bytes > 0 || table.ring_nodes_max > 0 ||
                           table.family != collectives::Family::automatic;
    table.version = needs_.tuned || has_rules ? plan_version_max : plan_version_by_size;
    return engine::record_of(table);
}

void Member::set_tuned(std::optional<collectives::Tuning> tuned) {
    needs_.tuned = tuned;
    engine_->set_plan(plan_table());
}

void Member::set_trial(const std::string& group, uint64_t doubling_bytes_max) {
    engine_->set_trial(group, doubling_bytes_max);
}

void Member::build_engine() {
    const config::Config& config = needs_.config;
    engine::EngineConfig c;
    c.self = needs_.self;
    c.incarnation = needs_.incarnation;
    c.hostname = host_name();
    c.timeouts = {config::seconds(config.collective_timeout), config::seconds(config.barrier_timeout),
                  config::seconds(config.rpc_timeout)};
    c.plan = plan_table();
    c.heartbeat_interval = config::seconds(config.heartbeat_interval);
    c.heartbeat_timeout = config::seconds(config.heartbeat_timeout);
    // A node that makes few groups itself may still lead many of the others'.
    c.node_opens_max = std::max<size_t>(c.node_opens_max, config.groups_max);
    c.bulk_shards = static_cast<uint32_t>(config::bulk_shards_of(config));
    c.credentials = [self = c.self](const engine::OpenRequest& request) {
        return credentials(request, self);
    };
    c.proof = proof_port();
    c.clock = loop::Loop::now;
    c.host_of = [this](const NodeId& node) {
        return plane_ ? plane_->table().hostname_of(node) : std::string();
    };
    c.in_cluster = [this] { return in_cluster(); };
    c.knows_lower = [this, self = c.self] { return plane_ && plane_->table().knows_below(self); };
    c.on_request = [this](Time now, const GroupId& group) { lending_.requested(now, group); };
    clients_ = std::make_unique<ClientsRelay>();
    plane_relay_ = std::make_unique<PlaneRelay>();
    engine::EnginePorts ports{*clients_, *pool_, *plane_relay_, {plane_relay_.get()}, needs_.log};
    for (uint32_t i = 0; i < c.bulk_shards; ++i) {
        shard_meshes_.push_back(std::make_unique<ShardMesh>(lending_));
        ports.meshes.push_back(shard_meshes_.back().get());
    }
    loop_bulk_ = std::make_unique<LoopBulk>();
    ports.meshes.push_back(loop_bulk_.get());
    c.has_loop_bulk = true;
    engine_ = std::make_unique<engine::Engine>(c, ports, admission::random_u64());
}

Result<void> Member::build_server() {
    local::ServerConfig c;
    c.sockets[0].path = needs_.config.socket;
    for (const config::SessionSocket& s : needs_.config.session_sockets)
        c.sockets.push_back({s.path, s.label, {s.mode, s.owner, s.group}});
    c.node = needs_.self;
    c.session.session_bytes_max = needs_.config.session_memory_max_bytes;
    c.session.region_bytes_max = needs_.config.session_memory_max_bytes;
    c.session.memfds_in_place = needs_.config.memfds_in_place;
    NEXAR_TRY(server_, local::Server::open(c, *engine_, tenants_, *this, needs_.log));
    local::BusGuard::wake_at_faults(&needs_.wakeup);
    clients_->server = server_.get();
    pool_->give_way_beside(server_->bulk_count());
    return {};
}

bool Member::step(Time now) {
    server_->end_withdrawn(now);
    bool work = plane_ && step_cluster(now);
    work |= read_workers(now);
    work |= server_->poll(now) > 0;
    if (server_->wake_at() <= now) server_->on_time(now);
    if (engine_->wake_at() <= now) engine_->on_time(now);
    if (plane_) work |= end_step_of_cluster(now);
    return work;
}

bool Member::gives_way(Time now) {
    return server_->take_completed() && !loop_bulk_->is_due(now) && !lending_.is_due(now);
}

bool Member::read_workers(Time now) {
    bool work = false;
    while (auto handle = pool_->poll_done()) {
        engine_->on_worker_done(now, *handle);
        work = true;
    }
    return work;
}

Time Member::wake_at() const {
    return std::min({plane_ ? plane_->wake_at() : never, loop_bulk_->wake_at(), lending_.wake_at(),
                     server_->wake_at(), engine_->wake_at(), roster_.saving ? never : roster_.due});
}

bool Member::prepare_to_sleep() {
    return server_->prepare_to_sleep();
}
void Member::on_woken() {
    server_->on_woken();
}

void Member::say_goodbye(Time now, const std::string& reason) {
    engine_->goodbye(now, reason);
    server_->stop(now, reason);
    if (!plane_) return;
    plane_->say_goodbye(now, reason);
    plane_->close_all(now, reason);
    if (roster_.due != never) save_roster(now);
}

void Member::watch(int fd, uint64_t key) {
    session_watches_[key] = needs_.loop.watch(
        fd, true, false, [this, key](loop::Loop::Ready) { server_->on_readable(loop::Loop::now(), key); });
}

void Member::unwatch(int, uint64_t key) {
    session_watches_.erase(key);
}

link::TrafficCounts Member::traffic(PeerIndex peer, const PeerView& view) const {
    link::TrafficCounts out = plane_->traffic(peer);
    for (const BulkView& bulk : view.bulk) out += bulk.traffic->read();
    return out;
}

link::TrafficCounts Member::traffic() const {
    if (!plane_) return {};
    link::TrafficCounts out = plane_->traffic();
    for (const auto& shard : shards_) out += shard->traffic();
    out += loop_bulk_->traffic();
    return out;
}

}  // namespace nexar::node
