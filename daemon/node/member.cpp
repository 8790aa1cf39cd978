// See member.hpp.
#include "node/member.hpp"

#include <algorithm>
#include <sstream>

#include "core/cores.hpp"
#include "node/group_key.hpp"
#include "node/wall_clock.hpp"
#include "wire/limits.hpp"

namespace nexar::node {
namespace {

constexpr size_t events_per_turn_max = 1024;
constexpr size_t departures_max = 4096;
constexpr Duration roster_pause{1'000'000'000};   // between two writes, so that a burst of new peers is two
constexpr Duration roster_quiet{10'000'000'000};  // between two log lines about the disk [K9]

quic::Identity quic_identity(const Identity& id) {
    quic::Identity out;
    out.certificate_chain = id.chain();
    out.private_key = id.node_key;
    out.trust_anchors = id.root_certificate;
    if (id.issuer) {
        out.join_certificate_chain = id.issuer->certificate + id.root_certificate;
        out.join_private_key = id.issuer->key;
    }
    return out;
}

uint64_t random_u64() {
    uint64_t value = 0;
    admission::random_bytes(std::span(reinterpret_cast<uint8_t*>(&value), sizeof value));
    return value;
}

}  // namespace

// A bulk shard's mesh for the engine: every call is a command in the shard's queue.
class Member::ShardMesh final : public engine::MeshPort {
  public:
    explicit ShardMesh(shards::Shard& shard) : shard_(&shard) {}
    void post(link::Batch batch) override { shard_->post(std::move(batch)); }
    void withdraw(const link::OpKey& op) override { shard_->post(shards::Withdraw{op}); }
    void retract(const link::OpKey& op) override { shard_->post(shards::Retract{op}); }
    void forget_group(const GroupId& group) override { shard_->post(shards::ForgetGroup{group}); }

  private:
    shards::Shard* shard_;
};

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
TenantLimits tenant_limits(const config::Config& config) {
    TenantLimits limits;
    limits.total(Resource::sessions) = config.sessions_max;
    limits.total(Resource::regions) = config.regions_max;
    limits.total(Resource::region_bytes) = config.region_bytes_max;
    limits.total(Resource::groups) = config.groups_max;
    limits.total(Resource::scratch_bytes) = config.scratch_bytes_max;
    limits.share_percent = config.user_share_percent;
    return limits;
}
}  // namespace

Member::Member(const Needs& needs) : needs_(needs), tenants_(tenant_limits(needs.config)) {}

Result<std::unique_ptr<Member>> Member::start(const Needs& needs, Time now) {
    std::unique_ptr<Member> member(new Member(needs));
    NEXAR_TRY_VOID(member->build(now));
    return member;
}

// Shards and workers stop before the server unmaps the sessions' memory, which their jobs use.
Member::~Member() {
    session_watches_.clear();
    plane_watch_.reset();
    shards_.clear();
    pool_.reset();
    if (clients_) clients_->server = nullptr;
    server_.reset();
    engine_.reset();
}

Result<void> Member::build(Time now) {
    started_ = now;
    NEXAR_TRY(listen_, quic::Address::parse(needs_.config.listen));
    NEXAR_TRY(addresses_, choose_addresses(listen_, needs_.config.advertise, list_interfaces()));
    if (needs_.identity.issuer) {
        tokens_ = std::make_unique<TokenLedger>(needs_.identity.issuer->tokens, needs_.storage);
        join_server_ = std::make_unique<JoinServer>(needs_.identity, *tokens_, wall_now, needs_.log);
    }
    NEXAR_TRY(leaf_, admission::leaf_times(needs_.identity.certificate));
    renewer_ =
        std::make_unique<Renewer>(needs_.identity, leaf_, needs_.storage, wall_now, needs_.log, random_u64());

    const quic::Identity identity = quic_identity(needs_.identity);
    const quic::Verifier verifier = [root = needs_.identity.root_certificate](const quic::PeerChain& chain,
                                                                              std::string_view) {
        return admission::verify_member(chain, root, wall_now());
    };
    NEXAR_TRY_VOID(build_plane(now, identity, verifier));
    NEXAR_TRY_VOID(build_shards(identity, verifier));
    worker_count_ = needs_.config.workers ? needs_.config.workers : std::max<size_t>(1, usable_cores() - 1);
    pool_ = std::make_unique<workers::Pool>(worker_count_, needs_.wakeup);
    build_engine();
    return build_server();
}

Result<void> Member::build_plane(Time now, const quic::Identity& identity, const quic::Verifier& verifier) {
    ControlPlane::Config c;
    c.listen = listen_;
    c.identity = identity;
    c.verifier = verifier;
    c.quic.wall_clock = wall_now;
    c.renewer = renewer_.get();
    c.reset_secret = needs_.reset_secret(listen_.port);
    c.mesh.incarnation = needs_.incarnation.nonce;
    c.mesh.message_bytes_max = wire::message_bytes_max;
    c.mesh.has_log = true;
    c.seed = random_u64();
    c.table.self = {needs_.identity.node, host_name(), {}};
    for (const AddressChoice& a : addresses_.chosen) c.table.self.addresses.push_back(a.address);
    c.table.incarnation = needs_.incarnation;
    c.table.cluster = needs_.identity.cluster;
    c.table.bulk_port = static_cast<uint16_t>(listen_.port + 1);
    c.table.bulk_shards = static_cast<uint16_t>(std::max<uint64_t>(1, needs_.config.bulk_shards));
    roster_.text = needs_.roster;
    std::istringstream lines(roster_.text);
    for (std::string address; lines >> address && c.table.seeds.size() < 1024;)
        c.table.seeds.push_back(address);
    NEXAR_TRY(plane_, ControlPlane::open(std::move(c), join_server_.get(), needs_.log, now));
    plane_watch_ =
        needs_.loop.watch(plane_->fd(), true, false, [](loop::Loop::Ready) {});  // the turn reads it
    return {};
}

Result<void> Member::build_shards(const quic::Identity& identity, const quic::Verifier& verifier) {
    const size_t count = std::max<uint64_t>(1, needs_.config.bulk_shards);
    for (size_t i = 0; i < count; ++i) {
        shards::ShardConfig c;
        c.number = static_cast<uint16_t>(i);
        c.listen = listen_;
        c.listen.port = static_cast<uint16_t>(listen_.port + 1 + i);
        c.identity = identity;
        c.verifier = verifier;
        c.quic.wall_clock = wall_now;
        c.reset_secret = needs_.reset_secret(c.listen.port);
        c.self = needs_.identity.node;
        c.incarnation = needs_.incarnation;
        c.mesh.incarnation = needs_.incarnation.nonce;
        c.watch.interval = config::seconds(needs_.config.heartbeat_interval);
        c.watch.timeout = config::seconds(needs_.config.heartbeat_timeout);
        c.yield_window = Duration(static_cast<int64_t>(needs_.config.yield_microseconds * 1000));
        NEXAR_TRY(auto shard, shards::Shard::start(std::move(c), needs_.wakeup));
        shard_meshes_.push_back(std::make_unique<ShardMesh>(*shard));
        shards_.push_back(std::move(shard));
    }
    return {};
}

wire::PlanTableRecord Member::plan_table() const {
    wire::PlanTableRecord plan = engine::EngineConfig::default_plan();
    plan.small_bytes_max = needs_.config.small_message_bytes;
    plan.doubling_bytes_max = std::min(plan.doubling_bytes_max, plan.small_bytes_max);
    plan.segment_bytes = needs_.config.pipeline_segment_bytes;
    return plan;
}

void Member::build_engine() {
    const config::Config& config = needs_.config;
    engine::EngineConfig c;
    c.self = needs_.identity.node;
    c.incarnation = needs_.incarnation;
    c.hostname = host_name();
    c.timeouts = {config::seconds(config.collective_timeout), config::seconds(config.barrier_timeout),
                  config::seconds(config.rpc_timeout)};
    c.plan = plan_table();
    c.heartbeat_interval = config::seconds(config.heartbeat_interval);
    c.heartbeat_timeout = config::seconds(config.heartbeat_timeout);
    c.bulk_shards = static_cast<uint32_t>(shards_.size());
    c.credentials = [self = c.self](const engine::OpenRequest& request) {
        return credentials(request, self);
    };
    c.proof = proof_port();
    c.host_of = [this](const NodeId& node) { return plane_->table().hostname_of(node); };
    clients_ = std::make_unique<ClientsRelay>();
    engine::EnginePorts ports{*clients_, *pool_, *plane_, {plane_.get()}, needs_.log};
    for (auto& mesh : shard_meshes_) ports.meshes.push_back(mesh.get());
    engine_ = std::make_unique<engine::Engine>(c, ports, random_u64());
}

Result<void> Member::build_server() {
    local::ServerConfig c;
    c.sockets[0].path = needs_.config.socket;
    for (const config::SessionSocket& s : needs_.config.session_sockets)
        c.sockets.push_back({s.path, s.label, {s.mode, s.owner, s.group}});
    c.node = needs_.identity.node;
    c.session.session_bytes_max = needs_.config.session_memory_max_bytes;
    c.session.region_bytes_max = needs_.config.session_memory_max_bytes;
    NEXAR_TRY(server_, local::Server::open(c, *engine_, tenants_, *this, needs_.log));
    clients_->server = server_.get();
    return {};
}

bool Member::step(Time now) {
    server_->end_given_up(now);
    bool work = plane_->step(now);
    read_plane(now);
    work |= read_shards(now);
    work |= read_workers(now);
    work |= server_->poll(now) > 0;
    if (server_->wake_at() <= now) server_->on_time(now);
    if (engine_->wake_at() <= now) engine_->on_time(now);
    if (tokens_) work |= tokens_->step();
    if (roster_.saving) roster_is_saved(now);
    if (roster_.due <= now && !roster_.saving) save_roster(now);
    for (auto& shard : shards_) shard->flush();
    work |= plane_->step(now);  // sends what the engine has posted in this turn
    read_plane(now);
    if (plane_->wants_writable() != plane_wants_write_) {
        plane_wants_write_ = plane_->wants_writable();
        plane_watch_->want(true, plane_wants_write_);
    }
    return work;
}

void Member::read_plane(Time now) {
    while (auto event = plane_->poll_event()) on_plane(now, std::move(*event));
    while (const auto peer = plane_->poll_sent()) engine_->on_sent(now, *peer);
}

void Member::on_plane(Time now, PlaneEvent event) {
    std::visit(
        [&](auto& e) {
            using E = std::decay_t<decltype(e)>;
            if constexpr (std::is_same_v<E, connections::PeerIsUp>) {
                peer_is_up(now, e);
            } else if constexpr (std::is_same_v<E, connections::PeerIsDown>) {
                peer_is_down(now, e);
            } else if constexpr (std::is_same_v<E, connections::PeerReceived>) {
                // Packets may follow the goodbye of a peer that is gone from the table.
                if (const auto at = peers_.find(e.peer); at != peers_.end()) at->second.last_received_at = now;
                engine_->on_received(now, e.peer, e.rtt);
            } else if constexpr (std::is_same_v<E, connections::RedialFailed>) {
                engine_->on_redial_failed(now, e.peer);
            } else if constexpr (std::is_same_v<E, PeerMessage>) {
                engine_->on_message(now, e.peer, e.message);
            } else if constexpr (std::is_same_v<E, CertificateRenewed>) {
                use_new_certificate(now);
            } else {
                engine_->on_mesh_event(now, e);
            }
        },
        event);
}

void Member::peer_is_up(Time now, const connections::PeerIsUp& up) {
    PeerView& view = peers_[up.info.peer];
    departures_.erase(up.info.record.node);
    view = {up.info, up.remote, true, view.bulk_up, now, now, {}, std::move(view.on_shards)};
    needs_.log.info("peer_up", {field("peer", up.info.record.node), field("host", up.info.record.hostname),
                                field("address", view.remote)});
    introduce_to_shards(up, view);
    engine_->on_peer_up(now, up.info.peer, up.info.record.node, up.info.incarnation);
    roster_.due = std::max(now, roster_.free);
}

// Each shard connects to the peer's shard of the same number; a group uses as many as all its nodes have.
void Member::introduce_to_shards(const connections::PeerIsUp& up, PeerView& view) {
    auto address = quic::Address::parse(up.remote);
    if (!address) return;  // cannot happen: the address is that of an open connection
    const size_t count = std::min<size_t>(shards_.size(), up.info.bulk_shards);
    while (view.on_shards.size() < count) view.on_shards.push_back(std::make_shared<link::Traffic>());
    for (size_t i = 0; i < count; ++i) {
        address->port = static_cast<uint16_t>(up.info.bulk_port + i);
        shards_[i]->post(connections::KnownPeer{up.info.peer, up.info.record.node, up.info.incarnation,
                                                address->text(), needs_.identity.node < up.info.record.node,
                                                view.on_shards[i]});
    }
}

void Member::peer_is_down(Time now, const connections::PeerIsDown& down) {
    PeerView& view = peers_[down.peer];
    view.up = false;
    view.since = now;
    view.why_down = down.why;
    needs_.log.warn("peer_down", {field("peer", view.info.record.node), field("why", down.why),
                                  field("proof", down.proof)});
    engine_->on_peer_down(now, down.peer, down.why, down.proof);
    if (!down.proof) return;  // transfers wait for a new connection
    for (auto& shard : shards_) shard->post(shards::DropPeer{down.peer});
    plane_->drop_peer(down.peer);
    if (departures_.size() >= departures_max) departures_.clear();
    departures_[view.info.record.node] = down.why;
    peers_.erase(down.peer);
}

std::string Member::why_departed(const NodeId& node) const {
    const auto found = departures_.find(node);
    return found == departures_.end() ? std::string() : found->second;
}

void Member::use_new_certificate(Time now) {
    const auto identity = std::make_shared<const quic::Identity>(quic_identity(needs_.identity));
    const WallSeconds old_left = std::exchange(leaf_, renewer_->renewal().leaf()).expires - wall_now();
    if (auto used = plane_->set_identity(*identity, old_left, now); !used) {
        needs_.log.error("certificate_not_used", {field("why", used.error().text)});
        return;
    }
    for (auto& shard : shards_) shard->post(shards::UseIdentity{identity});
}

bool Member::read_shards(Time now) {
    bool work = false;
    for (size_t i = 0; i < shards_.size(); ++i) {
        for (size_t n = 0; n < events_per_turn_max; ++n) {
            auto event = shards_[i]->poll_event();
            if (!event) break;
            work = true;
            if (auto* mesh = std::get_if<link::MeshEvent>(&*event)) {
                engine_->on_mesh_event(now, *mesh);
            } else if (auto* bulk = std::get_if<connections::BulkState>(&*event)) {
                if (const auto it = peers_.find(bulk->peer); it != peers_.end())
                    it->second.bulk_up = bulk->up;
                if (!bulk->cut_off.empty())
                    engine_->on_bulk_cut_off(now, bulk->peer, bulk->cut_off, bulk->why);
                needs_.log.debug(bulk->up ? "bulk_up" : "bulk_down",
                                 {field("peer", bulk->peer), field("why", bulk->why)});
            }
        }
    }
    return work;
}

bool Member::read_workers(Time now) {
    bool work = false;
    while (auto handle = pool_->poll_done()) {
        engine_->on_worker_done(now, *handle);
        work = true;
    }
    return work;
}

// Saves the known addresses, which a restarted node dials.
void Member::save_roster(Time now) {
    roster_.due = never;
    std::string text;
    for (const auto& record : plane_->table().roster())
        for (const std::string& address : record.addresses) text += address + "\n";
    if (text == roster_.text) return;
    roster_.text = std::move(text);
    roster_.free = now + roster_pause;
    roster_.saving = needs_.storage.save({{roster_file, Secret(roster_.text)}});
}

void Member::roster_is_saved(Time now) {
    const storage::Outcome* outcome = roster_.saving->outcome();
    if (!outcome) return;
    if (!outcome->result) {
        roster_.text.clear();  // the next change is saved, whatever it is
        if (now >= roster_.quiet_until)
            needs_.log.warn("roster_not_saved", {field("why", outcome->result.error().text)});
        if (now >= roster_.quiet_until) roster_.quiet_until = now + roster_quiet;
    }
    roster_.saving.reset();
}

Time Member::wake_at() const {
    return std::min(
        {plane_->wake_at(), server_->wake_at(), engine_->wake_at(), roster_.saving ? never : roster_.due});
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
    plane_->say_goodbye(reason);
    plane_->step(now);
    plane_->step(now);
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
    for (const auto& shard : view.on_shards) out += shard->read();
    return out;
}

link::TrafficCounts Member::traffic() const {
    link::TrafficCounts out = plane_->traffic();
    for (const auto& shard : shards_) out += shard->traffic();
    return out;
}

}  // namespace nexar::node
