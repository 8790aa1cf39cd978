#include "engine/engine.hpp"

#include <algorithm>
#include <utility>

#include "engine/engine_impl.hpp"
#include "engine/records.hpp"

namespace nexar::engine {

wire::PlanTableRecord EngineConfig::default_plan() {
    return record_of(collectives::PlanTable{});
}

Engine::Engine(const EngineConfig& config, const EnginePorts& ports, uint64_t seed)
    : impl_(std::make_unique<Impl>(config, ports, seed)) {}

Engine::~Engine() = default;

void Engine::Impl::turn() {
    do {
        context.run_ready();
        watch.drain();
        while (const auto reach = watch.poll_reach()) reach_changed(*reach);
        while (const auto found = watch.poll_found())
            if (Group* group = find(found->group)) group->node_failed(found->excluded, found->error);
        while (const auto unknown = watch.poll_unknown())
            if (const auto peer = context.find_peer(unknown->from))
                answer_for_ended_group(*peer, unknown->group, unknown->epoch);
        end_some();  // may end opens
        while (const auto event = opening.poll())
            std::visit([this](const auto& e) { on_opening(e); }, *event);
    } while (!context.idle() || (has_ends() && ends_left > 0));
    remove_finished();
}

Error Engine::Impl::with_host(Error error) const {
    NodeId node;
    if (error.host.empty() && NodeId::parse_hex(error.node, node)) error.host = context.host_of(node);
    return error;
}

// ---- Sessions ----

Result<void> Engine::open(Time now, const OpenRequest& request) {
    impl_->set_time(now);
    NEXAR_TRY(const ChargeRef charge, request.tenant->charge(Resource::groups));
    Impl::Session& session = impl_->sessions[request.session];
    session.account = link::Account(request.tenant->number);
    session.tenant = request.tenant;
    Result<void> result;
    if (request.create) {
        result = impl_->creates.begin(request, charge);
    } else if (const auto number = impl_->opening.open(request, charge); !number) {
        result = fail(number.error());
    }
    impl_->turn();
    return result;
}

Result<void> Engine::submit(Time now, const OpRequest& request) {
    impl_->set_time(now);
    Group* group = impl_->find(request.group);
    LocalRank* local = group == nullptr ? nullptr : group->find_local(request.session, request.rank);
    const auto session = impl_->sessions.find(request.session);
    if (local == nullptr || session == impl_->sessions.end())
        return fail(Errc::not_found, "this session has no such rank of the group");
    auto& requests = session->second.requests;
    const Impl::Session::Request known{request.group, local->posted};
    const bool is_new = requests.try_emplace(request.ticket, known).second;
    Result<void> result = group->submit(*local, request);
    if (!result && is_new) requests.erase(request.ticket);
    impl_->turn();
    if (!result) return fail(group->explained(std::move(result).error()));
    return result;
}

void Engine::cancel(Time now, SessionId session, uint64_t ticket) {
    impl_->set_time(now);
    const auto it = impl_->sessions.find(session);
    if (it == impl_->sessions.end()) return;
    if (impl_->opening.cancel(session, ticket)) {
        const bool created = impl_->creates.remove(session, ticket);
        const Error cancelled{
            Errc::cancelled, created ? "the create was cancelled" : "the open was cancelled", -1, -1, {}};
        impl_->context.ports.clients.group_opened(session, ticket, fail(cancelled));
        return impl_->turn();
    }
    const auto request = it->second.requests.find(ticket);
    if (request != it->second.requests.end()) {  // it has not ended
        const auto [id, seq] = request->second;
        if (Group* group = impl_->find(id)) group->cancel(session, ticket, seq);
    }
    impl_->turn();
}

void Engine::stage(Time now, SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) {
    impl_->set_time(now);
    const auto it = impl_->sessions.find(session);
    if (it == impl_->sessions.end()) return;
    const auto request = it->second.requests.find(ticket);
    if (request != it->second.requests.end()) {
        const auto [id, seq] = request->second;
        if (Group* group = impl_->find(id)) group->on_stage_progress(session, ticket, seq, filled, taken);
    }
    impl_->turn();
}

Result<void> Engine::free_group(Time now, SessionId session, const GroupId& id, uint32_t rank) {
    impl_->set_time(now);
    Group* group = impl_->find(id);
    LocalRank* local = group == nullptr ? nullptr : group->find_local(session, rank);
    if (local == nullptr) return fail(Errc::not_found, "this session has no such rank of the group");
    if (local->left) return fail(Errc::closed, "this rank has left the group already");
    group->leave(*local, Leaving::freed, "it freed the group");
    if (!group->messages().has_sends_of(session)) {  // they may still be cancelled
        impl_->detach(session, id);
        impl_->unlist(*group, *local);
    }
    impl_->turn();
    return {};
}

Result<void> Engine::abort_group(Time now, SessionId session, const GroupId& id, uint32_t rank,
                                 const std::string& reason) {
    impl_->set_time(now);
    Group* group = impl_->find(id);
    LocalRank* local = group == nullptr ? nullptr : group->find_local(session, rank);
    if (local == nullptr) return fail(Errc::not_found, "this session has no such rank of the group");
    if (local->left) return fail(Errc::closed, "this rank has left the group already");
    group->leave(*local, Leaving::aborted,
                 reason.empty() ? "it aborted the group" : "it aborted the group: " + reason);
    impl_->turn();
    return {};
}

Regions& Engine::regions() {
    return impl_->context.regions;
}

void Engine::session_ended(Time now, SessionId session, SessionEnd how, const std::string& reason) {
    impl_->set_time(now);
    const auto node = impl_->sessions.extract(session);  // from here on nothing is completed for it
    if (node.empty()) return;
    impl_->opening.session_ended(session);
    impl_->creates.remove_session(session);
    const bool crashed = how == SessionEnd::crashed || impl_->stopping;
    const Leaving leaving = how == SessionEnd::given_up ? Leaving::given_up
                            : crashed                   ? Leaving::crashed
                                                        : Leaving::closed;
    for (const GroupId& id : std::set(node.mapped().groups.begin(), node.mapped().groups.end())) {
        const Group* group = impl_->find(id);
        if (group == nullptr) continue;
        for (const LocalRank& local : group->locals())
            if (local.session == session)
                impl_->departing.push_back({id, session, local.rank, leaving, reason});
    }
    // [S15] Nothing of it may be executed any more. With the daemon's own end there are no later turns.
    if (how == SessionEnd::given_up || impl_->stopping) impl_->depart_all();
    impl_->turn();
}

// ---- Peers ----

void Engine::on_peer_up(Time now, link::PeerIndex index, const NodeId& node, const Incarnation& incarnation) {
    impl_->set_time(now);
    PeerState& peer = impl_->context.peer(index);
    peer = {node, incarnation, true, true};
    impl_->context.set_peer(node, index);
    impl_->watch.on_peer_up(index);
    impl_->opening.on_peer_up(node, incarnation);
    impl_->turn();
}

void Engine::on_peer_down(Time now, link::PeerIndex index, const std::string& reason, bool proof) {
    impl_->set_time(now);
    PeerState& peer = impl_->context.peer(index);
    if (!peer.known) return;
    peer.up = false;
    impl_->opening.on_peer_down(peer.node, peer.incarnation);
    impl_->watch.on_peer_down(index, reason, proof);
    impl_->turn();
}

void Engine::on_bulk_cut_off(Time now, link::PeerIndex peer, std::span<const GroupId> groups,
                             const std::string& why) {
    impl_->set_time(now);
    for (const GroupId& id : groups) {
        impl_->watch.on_link_lost(peer, id, why);
        if (Group* group = impl_->find(id)) group->link_lost(impl_->context.peer(peer).node);
    }
    impl_->turn();
}

void Engine::on_redial_failed(Time now, link::PeerIndex peer) {
    impl_->set_time(now);
    impl_->watch.on_redial_failed(peer);
    impl_->turn();
}

void Engine::on_received(Time now, link::PeerIndex peer, Duration rtt) {
    impl_->set_time(now);
    impl_->watch.on_received(peer, rtt);
}

void Engine::on_sent(Time now, link::PeerIndex peer) {
    impl_->set_time(now);
    impl_->watch.on_sent(peer);
}

void Engine::on_message(Time now, link::PeerIndex from, const wire::Message& message) {
    impl_->set_time(now);
    if (!impl_->context.peer(from).known) return;
    impl_->watch.on_received(from);
    impl_->dispatch(from, message);
    impl_->turn();
}

void Engine::goodbye(Time now, const std::string& reason) {
    impl_->set_time(now);
    const Error error{Errc::daemon_lost, "the daemon is stopping: " + reason, -1, -1,
                      impl_->context.config.self.hex()};
    for (auto& [id, group] : impl_->groups) group->abandon(error);
    impl_->stopping = true;
    impl_->turn();
}

// ---- Completions ----

void Engine::on_mesh_event(Time now, const link::MeshEvent& event) {
    impl_->set_time(now);
    switch (event.kind) {
        case link::MeshEvent::Kind::done:
            impl_->context.complete(event.handle, {});
            break;
        case link::MeshEvent::Kind::failed:
            impl_->context.complete(event.handle, event.text.empty()
                                                      ? fail(Errc::aborted, "the transfer was withdrawn")
                                                      : fail(Errc::mismatch, event.text));
            break;
        case link::MeshEvent::Kind::mismatch:
            if (Group* group = impl_->find(event.key.op.group)) group->on_mismatch(event);
            break;
        case link::MeshEvent::Kind::log_discarded:
            impl_->log_discarded(event.peer);
            break;
        case link::MeshEvent::Kind::log_room:
            impl_->log_has_room();
            break;
        case link::MeshEvent::Kind::message:
        case link::MeshEvent::Kind::peer_garbage:
            break;  // the node's: it decodes, and closes channels
    }
    impl_->turn();
}

void Engine::on_worker_done(Time now, uint64_t handle) {
    impl_->set_time(now);
    impl_->context.complete(handle, {});
    impl_->turn();
}

void Engine::on_time(Time now) {
    impl_->begin_turn(now);
    impl_->context.turns.next();
    impl_->timers.run(now, [this, now] {
        const auto& clock = impl_->context.config.clock;
        return clock ? clock() : now;
    });
    if (impl_->watch.wake_at() <= now) impl_->watch.on_time();
    if (impl_->opening.wake_at() <= now) impl_->opening.on_time();
    impl_->turn();
}

Time Engine::wake_at() const {
    const Time ends = impl_->has_ends() || impl_->context.turns.waiting() ? impl_->context.now : never;
    return std::min({ends, impl_->timers.next(), impl_->watch.wake_at(), impl_->opening.wake_at()});
}

// ---- Looking ----

void Engine::inquire_forming(Time now, const SnapshotScope& scope, bool also) {
    impl_->set_time(now);
    impl_->opening.inquire(scope, also);
    impl_->turn();
}

bool Engine::is_inquiring() const {
    return impl_->opening.is_inquiring();
}

size_t Engine::groups(const std::optional<TenantName>& own) const {
    return own ? impl_->group_index.of(*own).size() : impl_->groups.size();
}

size_t Engine::running() const {
    return impl_->context.running;
}

size_t Engine::collectives() const {
    return impl_->context.collectives;
}

uint64_t Engine::offers_looked_at() const {
    return impl_->context.offers_looked_at;
}
uint64_t Engine::receives_looked_at() const {
    return impl_->context.receives_looked_at;
}
uint64_t Engine::cancels_looked_at() const {
    return impl_->context.cancels_looked_at;
}
uint64_t Engine::creates_looked_at() const {
    return impl_->context.creates_looked_at;
}
uint64_t Engine::rows_looked_at() const {
    return impl_->rows_looked_at + impl_->opening.visited();
}

uint64_t Engine::groups_visited() const {
    return impl_->groups_visited;
}

void Engine::check_invariants() const {
    impl_->check_invariants();
}

void Engine::set_plan(const wire::PlanTableRecord& plan) {
    impl_->opening.set_plan(plan);
}

void Engine::set_trial(const std::string& group, uint64_t doubling_bytes_max) {
    impl_->opening.set_trial({group, doubling_bytes_max});
}

bool Engine::quiet() const {
    if (impl_->context.pending() > 0 || impl_->has_ends()) return false;
    for (const auto& [id, group] : impl_->groups)
        if (group->runs_in_flight() > 0 || !group->messages().idle()) return false;
    return true;
}

Result<void> Engine::install_group(Time now, const wire::GroupPrepare& group,
                                   std::span<const SessionId> sessions, const TenantRef& tenant) {
    impl_->set_time(now);
    std::vector<LocalRank> local;
    for (const auto& member : group.members)
        if (member.node == impl_->context.config.self && local.size() < sessions.size())
            local.push_back({member.rank, sessions[local.size()], 0, false, {}, {}});
    for (SessionId session : sessions) impl_->sessions[session].tenant = tenant;
    const auto secret = secret_of(group.group, rendezvous::ProofKey{}, impl_->context.config.proof);
    const Result<void> result = impl_->make_group(group, local, secret);
    if (result) impl_->replay_early(group.group);
    impl_->turn();
    return result;
}

}  // namespace nexar::engine
