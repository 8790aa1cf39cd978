#include "cluster.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <sstream>

#include "engine/local_job.hpp"
#include "local/session_core.hpp"
#include "reference.hpp"
#include "support/proofs.hpp"
#include "support/regions.hpp"
#include "wire/codec.hpp"

namespace nexar::sim {

// The engine's way to one mesh: at once for the loop's own, by a queue for a shard's.
class Host::Port final : public engine::MeshPort {
  public:
    Port(Host& host, size_t mesh) : host_(host), mesh_(mesh) {}

    void post(link::Batch batch) override {
        later([this, b = std::make_shared<link::Batch>(std::move(batch))] {
            host_.meshes[mesh_]->post(std::move(*b));
        });
    }
    void withdraw(const link::OpKey& op) override {
        later([this, op] { host_.meshes[mesh_]->withdraw(op); });
    }
    void retract(const link::OpKey& op) override {
        later([this, op] { host_.meshes[mesh_]->retract(op); });
    }
    void forget_group(const GroupId& group) override {
        later([this, group] { host_.meshes[mesh_]->forget_group(group); });
    }
    // The engine's side of the queue: in order.
    void event(link::MeshEvent event) {
        last_event_ = std::max(last_event_, host_.cluster_.clock.now() + hop());
        host_.cluster_.clock.at(last_event_, [this, e = std::make_shared<link::MeshEvent>(std::move(event))] {
            if (!host_.dead) host_.on_event(*e);
        });
    }

  private:
    Duration hop() {
        return mesh_ != 1 ? Duration{0} : host_.cluster_.clock.some(host_.cluster_.shape.shard_hop);
    }
    void later(std::function<void()> act) {
        last_command_ = std::max(last_command_, host_.cluster_.clock.now() + hop());
        host_.cluster_.clock.at(last_command_, [this, act = std::move(act)] {
            if (host_.dead) return;
            act();
            host_.pump(mesh_);
        });
    }
    Host& host_;
    size_t mesh_;
    Time last_command_{}, last_event_{};
};

Host::Host(Cluster& cluster, uint32_t index, uint32_t identity, uint64_t counter)
    : tenants(cluster.shape.tenants),
      cluster_(cluster),
      index_(index),
      pump_scheduled_(meshes_per_host),
      acks_scheduled_(meshes_per_host) {
    for (size_t i = 0; i < id.bytes.size(); ++i)
        id.bytes[i] = static_cast<uint8_t>(identity * 37 + i * 11 + 1);
    incarnation = {counter, index + 100};
    close = [&cluster, index](link::PeerIndex peer) { cluster.break_channel(index, peer.value, 1ms); };
    log_ = std::make_unique<Log>(
        [&cluster, index](Level level, const std::string& line) {
            if (level == Level::error)
                cluster.errors.push_back("node " + std::to_string(index) + ": " + line);
            if (level == Level::warn) cluster.warnings.push_back(line);
        },
        Level::warn);
    engine::EngineConfig config = cluster.shape.engine;
    config.self = id;
    config.incarnation = incarnation;
    config.plan = cluster.shape.plan;
    config.hostname = hostname();
    config.features = cluster.capabilities_of(identity).features;
    config.has_loop_bulk = cluster.shape.connected;  // its third mesh has channels then
    config.loop_bulk_min = std::min(config.loop_bulk_min, config.plan.small_bytes_max / 2);
    config.host_of = [&cluster](const NodeId& node) {
        for (const auto& host : cluster.hosts)
            if (host->id == node) return host->hostname();
        return std::string();
    };
    config.credentials = [index](const engine::OpenRequest& r) {
        return test::credentials_of(std::string(r.job_secret.text()), r.name, index, r.tenant->name.uid);
    };
    config.proof = test::proof_port(index);
    std::vector<engine::MeshPort*> ports;
    for (size_t i = 0; i < meshes_per_host; ++i) {
        link::MeshConfig mesh = cluster.shape.mesh;
        mesh.incarnation = incarnation.nonce;
        mesh.has_log = i == 0;
        meshes.push_back(std::make_unique<link::Mesh>(mesh));
        ports_.push_back(std::make_unique<Port>(*this, i));
        ports.push_back(ports_.back().get());
    }
    const engine::EnginePorts edges{*this, *this, *this, ports, *log_};
    engine = std::make_unique<engine::Engine>(config, edges, cluster.clock.random.next());
}

// What its operations have reserved goes back to the meshes.
Host::~Host() {
    engine.reset();
}

void Host::complete(SessionId session, uint64_t ticket, const engine::Outcome& outcome) {
    if (const auto core = cores.find(session.value); core != cores.end())
        return core->second->complete(ticket, outcome);
    const auto it = calls.find({session.value, ticket});
    if (it == calls.end() || it->second->ended) {
        cluster_.errors.push_back("a completion for a call that is not waiting");
        return;
    }
    it->second->end(outcome, cluster_.clock.now());
}

void Host::group_opened(SessionId session, uint64_t ticket, const Result<engine::GroupInfo>& info) {
    if (const auto core = cores.find(session.value); core != cores.end())
        return core->second->group_opened(ticket, info);
    opened.emplace(std::pair(session.value, ticket), info);
    opened_at.emplace(std::pair(session.value, ticket), cluster_.clock.now());
}

void Host::stage_done(SessionId session, uint64_t ticket, uint32_t done) {
    if (const auto core = cores.find(session.value); core != cores.end())
        return core->second->stage_done(ticket, done);
    const std::pair key(session.value, ticket);
    const auto it = calls.find(key);
    if (it == calls.end() || !it->second->staged || done <= it->second->stage_done) {
        cluster_.errors.push_back("segments are over of a call that is not staged, or were before");
        return;
    }
    it->second->stage_done = done;
    move_soon(key);
}

// The rank's own thread [S12], for ranks that have no shared memory.
void Host::move_soon(std::pair<uint64_t, uint64_t> key) {
    if (std::exchange(calls.at(key)->move_due, true)) return;
    const Duration delay = Duration(1) + cluster_.clock.some(cluster_.shape.move_delay);
    cluster_.clock.after(delay, [this, key] {
        Call& call = *calls.at(key);
        call.move_due = false;
        if (dead || call.ended || cluster_.abandoned_.contains(&call)) return;
        StagedMemory& staged = *call.staged;
        if (staged.move(call.stage_done)) {
            engine->stage(cluster_.clock.now(), SessionId(key.first), key.second, staged.filled,
                          staged.taken);
            after_input();
        }
        if (!call.ended && staged.can_move(call.stage_done)) move_soon(key);
    });
}

void Host::submit(engine::WorkerJob job) {
    const Duration delay = cluster_.clock.some(cluster_.shape.worker_delay);
    cluster_.clock.after(delay, [this, j = std::make_shared<engine::WorkerJob>(std::move(job))] {
        if (dead) return;
        if (j->wanted()) engine::run_here(*j);
        engine->on_worker_done(cluster_.clock.now(), j->handle);
        after_input();
    });
}

void Host::send(link::PeerIndex peer, Bytes message) {
    meshes[0]->send_message(peer, message);
    schedule_pump(0);
}

void Host::append(link::PeerIndex peer, Bytes message, std::optional<link::Account> account) {
    meshes[0]->append(peer, message, account);
    if (on_append) on_append(peer);
    schedule_pump(0);
}

bool Host::reserve(link::PeerIndex peer, link::Account account, size_t bytes) {
    return meshes[0]->reserve(peer, account, bytes);
}

bool Host::reserve_open(link::PeerIndex peer, link::Account account, size_t bytes) {
    return meshes[0]->reserve_open(peer, account, bytes);
}

void Host::release(link::PeerIndex peer, link::Account account, size_t bytes) {
    meshes[0]->release(peer, account, bytes);
    schedule_pump(0);
}

void Host::discard_log(link::PeerIndex peer, const std::string& why) {
    meshes[0]->discard_log(peer, why);
    schedule_pump(0);
}

void Host::schedule_pump(size_t mesh) {
    if (pump_scheduled_[mesh]) return;
    pump_scheduled_[mesh] = true;
    cluster_.clock.after(Duration{0}, [this, mesh] { pump(mesh); });
}

// As the control loop, which wakes for them [T6].
void Host::schedule_acks(size_t mesh) {
    const Time now = cluster_.clock.now(), due = meshes[mesh]->acks_due();
    if (due == never || acks_scheduled_[mesh]) return;
    acks_scheduled_[mesh] = true;
    cluster_.clock.after(std::max(due - now, Duration{0}), [this, mesh] {
        acks_scheduled_[mesh] = false;
        if (dead) return;
        meshes[mesh]->flush(cluster_.clock.now());
        meshes[mesh]->check_invariants();
        schedule_acks(mesh);
    });
}

void Host::pump(size_t mesh) {
    pump_scheduled_[mesh] = false;
    if (dead) return;
    meshes[mesh]->flush(cluster_.clock.now());
    schedule_acks(mesh);
    meshes[mesh]->check_invariants();
    if (mesh > 0) cluster_.maybe_move(index_);
    if (mesh == 0 && after_flush) after_flush();
    while (auto event = meshes[mesh]->poll_event()) ports_[mesh]->event(std::move(*event));
}

void Host::on_event(const link::MeshEvent& event) {
    const Time now = cluster_.clock.now();
    switch (event.kind) {
        case link::MeshEvent::Kind::message:
            on_message(event);
            break;
        case link::MeshEvent::Kind::log_discarded:
            if (!event.by_peer) close(event.peer);
            engine->on_mesh_event(now, event);
            break;
        case link::MeshEvent::Kind::peer_garbage:
            cluster_.errors.push_back("garbage: " + event.text);
            break;
        default:
            engine->on_mesh_event(now, event);
    }
    after_input();
}

void Host::on_message(const link::MeshEvent& event) {
    if (event.logged && on_arrival) on_arrival(event.peer);
    const auto message = wire::decode(event.bytes);
    if (!message)
        cluster_.errors.push_back("undecodable message: " + message.error().text);
    else if (wire::is_logged(*message) != event.logged)
        cluster_.errors.push_back("a message of the log outside it, or the other way round");
    else if (!table || !table(event.peer, *message))
        engine->on_message(cluster_.clock.now(), event.peer, *message);
}

void Host::after_input() {
    engine->check_invariants();
    for (size_t i = 0; i < meshes.size(); ++i) schedule_pump(i);
    const Time wake = engine->wake_at();
    if (wake == woken_at_ || wake == never) return;
    woken_at_ = wake;
    cluster_.clock.at(wake, [this, wake] {
        if (dead || woken_at_ != wake) return;
        woken_at_ = never;
        engine->on_time(cluster_.clock.now());
        after_input();
    });
}

// ---- Cluster ----

Cluster::Cluster(uint64_t seed, const ClusterShape& s)
    : clock(seed), shape(s), links_(size_t{s.nodes} * s.nodes), generations_(size_t{s.nodes} * s.nodes) {
    for (uint32_t i = 0; i < shape.nodes; ++i) hosts.push_back(std::make_unique<Host>(*this, i, i));
    moves_ = Random(seed);
    for (Link& l : links_) l.bulk_over_tcp = wire_mode() == WireMode::tcp;
    if (!shape.connected) return;
    for (uint32_t a = 0; a < shape.nodes; ++a)
        for (uint32_t b = 0; b < a; ++b) connect(a, b);
}

Cluster::~Cluster() = default;

void Cluster::connect(uint32_t a, uint32_t b) {
    make_pipes(a, b);
    make_pipes(b, a);
    const uint32_t generation = ++generations_[a * shape.nodes + b];
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        Host& host = *hosts[from];
        for (size_t m = 0; m < meshes_per_host; ++m) {
            host.meshes[m]->attach(link::PeerIndex(to), generation, *link(from, to).pipes[m]);
            host.schedule_pump(m);
        }
        host.engine->on_peer_up(clock.now(), link::PeerIndex(to), hosts[to]->id, hosts[to]->incarnation);
        host.after_input();
    }
}

SimGroup Cluster::make_group(std::vector<uint32_t> placement,
                             const std::map<uint32_t, wire::PlanTableRecord>& plans, bool shared,
                             const std::vector<SessionId>& sessions) {
    SimGroup group;
    std::map<uint32_t, SessionId> session_of;
    group.placement = std::move(placement);
    wire::GroupPrepare prepare;
    constexpr uint64_t beyond_opened_ones = uint64_t{1} << 32;
    const Host& maker = *hosts[group.placement[0]];
    const uint64_t number = next_group_++;
    prepare.group = {maker.id.prefix(), maker.incarnation.nonce, beyond_opened_ones + number};
    prepare.epoch = 1;
    prepare.name = "g" + std::to_string(number);
    prepare.plan = shape.plan;
    const int64_t timeout_ms = to_ms(shape.collective_timeout);
    prepare.timeouts = {timeout_ms, to_ms(shape.barrier_timeout), 0};
    group.id = prepare.group;
    for (uint32_t rank = 0; rank < group.size(); ++rank) {
        const auto known = session_of.find(group.placement[rank]);
        const bool again = shared && known != session_of.end();
        if (!sessions.empty())
            group.sessions.push_back(sessions[rank]);
        else
            group.sessions.push_back(again ? known->second : SessionId(next_session_++));
        session_of[group.placement[rank]] = group.sessions.back();
        const uint32_t host = group.placement[rank];
        prepare.members.push_back(
            {{}, hosts[host]->id, rank, 1000 + rank, {}, capabilities_of(host).features});
    }
    for (uint32_t h = 0; h < shape.nodes; ++h) {
        std::vector<SessionId> local;
        for (uint32_t rank = 0; rank < group.size(); ++rank)
            if (group.placement[rank] == h) local.push_back(group.sessions[rank]);
        if (local.empty()) continue;
        prepare.plan = plans.contains(h) ? plans.at(h) : shape.plan;
        // A session is one user's.
        const uint64_t uid = 1000 + (sessions.empty() ? group.id.counter % 3 : 0);
        REQUIRE(hosts[h]->engine->install_group(clock.now(), prepare, local,
                                                hosts[h]->tenants.of("", static_cast<uint32_t>(uid))));
        hosts[h]->after_input();
    }
    return group;
}

Cluster::Open Cluster::open(uint32_t host, const std::string& name, uint32_t size, int64_t rank,
                            const std::string& secret, Duration timeout, uint32_t uid) {
    Open out{host, SessionId(next_session_++), hosts[host]->next_ticket++, {}};
    engine::OpenRequest request;
    request.session = out.session;
    request.ticket = out.ticket;
    request.name = name;
    request.size = size;
    request.rank = rank;
    request.job_secret = Secret(secret);
    request.tenant = hosts[host]->tenants.of("", uid);
    request.pid = 4000 + host;
    request.timeout = timeout;
    out.accepted = hosts[host]->engine->open(clock.now(), request);
    hosts[host]->after_input();
    return out;
}

const Result<engine::GroupInfo>* Cluster::answer(const Open& open) const {
    const auto& opened = hosts[open.host]->opened;
    const auto it = opened.find({open.session.value, open.ticket});
    return it == opened.end() ? nullptr : &it->second;
}

Call& Cluster::submit(const SimGroup& group, uint32_t rank, const engine::OpRequest& words,
                      std::vector<std::byte> in, size_t out_bytes, bool in_place,
                      std::shared_ptr<StagedMemory> staged) {
    Call& call = calls_.emplace_back();
    Host& host = *hosts[group.placement[rank]];
    call.submitted = clock.now();
    call.in = std::make_shared<std::vector<std::byte>>(std::move(in));
    if (in_place)
        call.out = call.in;
    else
        call.out = std::make_shared<std::vector<std::byte>>(out_bytes, std::byte{0xdd});
    engine::OpRequest request = words;
    if (!request.counts) request.counts = Reference::counts(words.descriptor, group.size());
    if (!request.own_counts) request.own_counts = Reference::own_counts(words.descriptor, group.size(), rank);
    if (request.own_counts) request.descriptor.count = 0;
    request.descriptor.counts = request.counts ? request.counts->digest() : 0;
    request.session = group.sessions[rank];
    request.group = group.id;
    request.rank = rank;
    request.ticket = host.next_ticket++;
    const auto side = [&](MemoryRef& ref, const std::shared_ptr<std::vector<std::byte>>& memory) {
        const MemoryRef whole = nexar::test::ref_of(host.engine->regions(), memory);
        ref = ref.bytes == 0 ? whole : MemoryRef{whole.region, ref.offset, ref.bytes};
    };
    if (!request.stage.in) side(request.in, call.in);
    if (!request.stage.out) side(request.out, call.out);
    call.result_at = request.stage.out ? 0 : request.out.offset;
    call.result_bytes = request.out.bytes;
    call.staged = std::move(staged);
    call.windows[0] = request.in.region;
    call.windows[1] = request.out.region;
    const bool is_source = words.descriptor.kind == engine::OpKind::broadcast && request.stage.in;
    if (request.stage.out || is_source) call.out.reset();
    if (host.dead) {
        abandoned_.insert(&call);
        return call;
    }
    host.calls[{request.session.value, request.ticket}] = &call;
    const auto result = host.engine->submit(clock.now(), request);
    call.accepted = result.has_value();
    if (!result) {
        REQUIRE_FALSE(call.ended);
        call.end({.error = result.error()}, clock.now());
    } else if (call.staged && !call.ended) {
        host.move_soon({request.session.value, request.ticket});
    }
    host.after_input();
    return call;
}

void Cluster::cancel(const SimGroup& group, uint32_t rank, const Call& call) {
    Host& host = *hosts[group.placement[rank]];
    for (const auto& [key, candidate] : host.calls)
        if (candidate == &call)
            return host.engine->cancel(clock.now(), SessionId(key.first), key.second), host.after_input();
}

Result<void> Cluster::free_group(const SimGroup& group, uint32_t rank) {
    Host& host = *hosts[group.placement[rank]];
    auto freed = host.engine->free_group(clock.now(), group.sessions[rank], group.id, rank);
    host.after_input();
    return freed;
}

Result<void> Cluster::abort_group(const SimGroup& group, uint32_t rank, const std::string& reason) {
    Host& host = *hosts[group.placement[rank]];
    auto aborted = host.engine->abort_group(clock.now(), group.sessions[rank], group.id, rank, reason);
    host.after_input();
    return aborted;
}

void Cluster::end_session(const SimGroup& group, uint32_t rank, bool crashed) {
    end_session(group, rank, crashed ? engine::SessionEnd::crashed : engine::SessionEnd::closed);
}

void Cluster::end_session(const SimGroup& group, uint32_t rank, engine::SessionEnd how) {
    Host& host = *hosts[group.placement[rank]];
    if (host.dead) return;
    for (const auto& [key, call] : host.calls)
        if (key.first == group.sessions[rank].value && !call->ended) abandoned_.insert(call);
    host.engine->session_ended(clock.now(), group.sessions[rank], how,
                               how == engine::SessionEnd::closed    ? "it exited"
                               : how == engine::SessionEnd::crashed ? "it crashed"
                                                                    : "it gave its daemon up");
    host.after_input();
}

bool Cluster::all_ended() const {
    return std::ranges::all_of(calls_, [&](const Call& c) { return c.ended || abandoned_.contains(&c); });
}

std::string Cluster::unfinished() const {
    std::string out;
    for (const auto& host : hosts) {
        if (host->dead) continue;
        const engine::Snapshot s = host->engine->snapshot(clock.now());
        for (const auto& op : s.ops)
            out += "node " + host->id.short_hex() + " " + op.descriptor.text() + " seq " +
                   std::to_string(op.seq) + " " + op.phase + "; ";
        for (const auto& m : s.messages) out += "node " + host->id.short_hex() + " " + m.what + "; ";
    }
    return out;
}

std::string Cluster::state() const {
    std::ostringstream out;
    for (const auto& host : hosts) {
        out << "node " << host->id.short_hex() << (host->dead ? " dead\n" : "\n");
        const engine::Snapshot s = host->engine->snapshot(clock.now());
        for (const auto& g : s.groups) {
            out << "  group " << g.name << " on " << g.nodes << " nodes, failed '" << g.failed.text << "'"
                << (g.frozen ? ", frozen\n" : "\n");
            for (const auto& r : g.ranks)
                out << "    rank " << r.rank.value << " on " << r.node.short_hex() << " posted " << r.posted
                    << (r.local ? " local" : "") << (r.gone ? " gone" : "") << "\n";
        }
        for (const auto& op : s.ops)
            out << "  op " << op.group_name << " " << op.seq << " " << op.descriptor.text() << ": "
                << op.phase << "; " << op.plan << "\n";
    }
    return out.str();
}

bool Cluster::run(Duration limit) {
    const Time end = clock.now() + limit;
    const auto quiet = [&] {
        return to_be_submitted == 0 && all_ended() &&
               std::ranges::all_of(hosts, [](const auto& h) { return h->dead || h->engine->quiet(); });
    };
    while (!quiet()) {
        if (clock.next() > end || !clock.step()) return false;
    }
    return true;
}

void Cluster::run_for(Duration time) {
    const Time end = clock.now() + time;
    clock.at(end, [] {});
    while (clock.next() <= end) clock.step();
}

void Cluster::break_channel(uint32_t a, uint32_t b, Duration down_for) {
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        for (auto& pipe : link(from, to).pipes) pipe->close();
        link(from, to).up = false;
        Host& host = *hosts[from];
        if (host.dead) continue;
        for (auto& mesh : host.meshes) mesh->detach(link::PeerIndex(to));
        host.engine->on_peer_down(clock.now(), link::PeerIndex(to), "connection reset");
        host.after_input();
    }
    clock.after(down_for, [this, a, b] {
        if (!hosts[a]->dead && !hosts[b]->dead) connect(std::max(a, b), std::min(a, b));
    });
}

void Cluster::block(uint32_t from, uint32_t to, bool blocked) {
    link(from, to).blocked = blocked;
    for (auto& pipe : link(from, to).pipes) pipe->set_blocked(blocked);
}

void Cluster::block_bulk(uint32_t from, uint32_t to) {
    auto& pipes = link(from, to).pipes;
    link(from, to).bulk_blocked = true;
    for (size_t m = 1; m < pipes.size(); ++m) pipes[m]->set_blocked(true);
}

void Cluster::kill(uint32_t dead, bool seen_at_once) {
    hosts[dead]->dead = true;
    for (const auto& [key, call] : hosts[dead]->calls)
        if (!call->ended) abandoned_.insert(call);
    for (uint32_t other = 0; other < shape.nodes; ++other) {
        if (other == dead) continue;
        for (auto& pipe : link(dead, other).pipes) pipe->close();
        if (!seen_at_once || hosts[other]->dead) continue;
        clock.after(clock.some(200us), [this, dead, other] {
            Host& host = *hosts[other];
            if (host.dead) return;
            for (auto& mesh : host.meshes) mesh->detach(link::PeerIndex(dead));
            host.engine->on_peer_down(clock.now(), link::PeerIndex(dead), "connection refused");
            host.after_input();
            for (int redial = 1; redial <= 3; ++redial)
                clock.after(redial * 20ms, [this, dead, other] {
                    if (hosts[other]->dead) return;
                    hosts[other]->engine->on_redial_failed(clock.now(), link::PeerIndex(dead));
                    hosts[other]->after_input();
                });
        });
    }
}

link::MeshStats Cluster::stats(uint32_t from, uint32_t to) const {
    link::MeshStats out;
    for (const auto& mesh : hosts[from]->meshes) {
        const link::MeshStats s = mesh->stats(link::PeerIndex(to));
        out.bytes_sent += s.bytes_sent;
        out.bytes_received += s.bytes_received;
        out.chunks_applied += s.chunks_applied;
        out.chunks_duplicate += s.chunks_duplicate;
        out.nacks_sent += s.nacks_sent;
        out.nacks_received += s.nacks_received;
        out.grants_sent += s.grants_sent;
    }
    return out;
}

uint64_t Cluster::bytes_sent(uint32_t from, uint32_t to) const {
    return stats(from, to).bytes_sent;
}

void Cluster::check() const {
    for (const std::string& error : errors) UNSCOPED_INFO(error);
    REQUIRE(errors.empty());
    for (const Call& call : calls_)
        if (call.ended) REQUIRE(call.is_poisoned());
}

}  // namespace nexar::sim
