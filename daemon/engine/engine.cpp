#include "engine/engine.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "engine/early_messages.hpp"
#include "engine/group.hpp"
#include "engine/opening.hpp"
#include "engine/records.hpp"
#include "engine/watch.hpp"
#include "wire/codec.hpp"
#include "wire/limits.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

wire::PlanTableRecord EngineConfig::default_plan() {
    const collectives::PlanTable t;
    return {t.version, t.small_bytes_max, t.doubling_bytes_max, t.chunk_bytes, t.segment_bytes, t.lanes};
}

class Engine::Impl final : public GroupHost {
  public:
    Impl(const EngineConfig& config, const EnginePorts& ports, uint64_t seed)
        : context(config, ports, seed),
          watch(context, Time{}),
          opening(context),
          early(config.early_bytes_per_peer_max) {}

    // Every input begins with the time and ends with a turn.
    void turn() {
        do {
            context.run_ready();
            watch.drain();
            while (const auto reach = watch.poll_reach()) {
                if (reach->reachable)
                    opening.on_peer_up(reach->node, reach->life);
                else
                    opening.on_peer_down(reach->node, reach->life);
            }
            while (const auto decided = watch.poll_decided()) group_lost(*decided);
            while (const auto event = opening.poll())
                std::visit([this](const auto& e) { on_opening(e); }, *event);
        } while (!context.idle());
        remove_finished();
    }
    void group_lost(const membership::Arbiter::Decided& decided) {
        Group* group = find(decided.group);
        if (group == nullptr) return;
        context.ports.log.warn("group_failed",
                               {field("group", decided.group), field("name", group->facts.name),
                                field("why", decided.error.text)});
        group->lose(decided.error, decided.whole_node);
    }
    void on_opening(const Opening::Answer& answer) {
        if (sessions.contains(answer.session))
            context.ports.clients.group_opened(answer.session, answer.ticket, fail(named(answer.error)));
    }
    void on_opening(const Opening::Formed& formed);
    void on_opening(const Opening::Lost& lost) {
        const Group* group = find(lost.group);
        if (group == nullptr) return;
        for (const auto& member : group->facts.members)
            if (member.node == lost.node)
                return watch.on_rank_lost(lost.group, Rank(member.rank), lost.node, lost.reason);
    }
    Error named(Error error) const {
        NodeId node;
        if (error.host.empty() && NodeId::parse_hex(error.node, node)) error.host = context.host_of(node);
        return error;
    }
    Group* find(const GroupId& id) {
        const auto it = groups.find(id);
        return it == groups.end() ? nullptr : it->second.get();
    }
    void remove_finished();
    void part(SessionId session, const GroupId& id);
    Result<void> make_group(const wire::GroupPrepare& prepare, const std::vector<LocalRank>& local);
    void keep_early(link::PeerIndex from, const GroupId& group, const wire::Message& message);
    void replay_early(const GroupId& group);
    void refuse_late(link::PeerIndex from, const wire::MessageOffer& offer);
    void not_made(const Opening::Formed& formed, const Error& why);
    void answer_all(const Opening::Formed& formed, const Error& why);
    void dispatch(link::PeerIndex from, const wire::Message& message);
    void log_discarded(link::PeerIndex peer);
    void log_has_room();

    // GroupHost
    void rank_lost(const GroupId& group, Rank rank, const NodeId& node, const std::string& reason) override {
        watch.on_rank_lost(group, rank, node, reason);
    }
    void peer_unreachable(link::PeerIndex peer, const std::string& reason) override {
        watch.suspect(peer, reason);
    }
    bool reachable(link::PeerIndex peer) const override { return watch.reachable(peer); }
    void complete(SessionId session, uint64_t ticket, const Outcome& outcome) override {
        if (sessions.contains(session)) context.ports.clients.complete(session, ticket, outcome);
    }
    void stage_done(SessionId session, uint64_t ticket, uint32_t done) override {
        if (sessions.contains(session)) context.ports.clients.stage_done(session, ticket, done);
    }

    Context context;
    Timers timers;
    Watch watch;
    Opening opening;
    EarlyMessages early;
    std::set<GroupId> finished;
    std::deque<GroupId> finished_order;
    std::map<GroupId, std::unique_ptr<Group>> groups;
    uint64_t groups_looked_at = 0;
    bool stopping = false;  // [F17]: its ranks do not leave, they go with the daemon, and so do their groups
    struct Session {
        std::vector<GroupId> groups;  // one for each of its ranks
        link::Account account;        // its user
    };
    std::unordered_map<SessionId, Session> sessions;
};

// One entry for each rank that the session has in the group.
void Engine::Impl::part(SessionId session, const GroupId& id) {
    const auto it = sessions.find(session);
    if (it == sessions.end()) return;
    std::vector<GroupId>& groups_of_session = it->second.groups;
    if (const auto at = std::ranges::find(groups_of_session, id); at != groups_of_session.end())
        groups_of_session.erase(at);
}

void Engine::Impl::remove_finished() {
    for (auto it = groups.begin(); it != groups.end();) {
        ++groups_looked_at;
        if (!it->second->finished()) {
            ++it;
            continue;
        }
        for (MeshPort* mesh : context.ports.meshes) mesh->forget_group(it->first);
        watch.on_group_gone(it->first);
        for (const LocalRank& local : it->second->locals()) part(local.session, it->first);
        if (finished.insert(it->first).second) finished_order.push_back(it->first);
        if (finished_order.size() > context.config.finished_groups_max) {
            finished.erase(finished_order.front());
            finished_order.pop_front();
        }
        it = groups.erase(it);
    }
}

// What came about a group before its commit, which took another way.
void Engine::Impl::keep_early(link::PeerIndex from, const GroupId& group, const wire::Message& message) {
    // A group is active nowhere before all its nodes have prepared it: without that it is over here.
    if (!opening.awaits(group)) {
        if (const auto* offer = std::get_if<wire::MessageOffer>(&message)) refuse_late(from, *offer);
        return;
    }
    const size_t bytes = wire::encode(message).size();
    if (early.keep(from, group, message, bytes)) return;
    early.drop_if([this](const EarlyMessages::Kept& kept) { return !opening.awaits(kept.group); });
    if (early.keep(from, group, message, bytes)) return;
    context.ports.peers.discard_log(from, "too many messages about groups that are not active here yet");
}

// It crossed the message that the rank is gone: that is applied before this answer, and says why.
void Engine::Impl::refuse_late(link::PeerIndex from, const wire::MessageOffer& offer) {
    const Error error{
        Errc::peer_lost, "rank " + std::to_string(offer.dst) + " has left the group", offer.dst, -1, {}};
    context.send(from, wire::MessageRefused{offer.group, offer.number, error});
}

void Engine::Impl::replay_early(const GroupId& group) {
    for (const EarlyMessages::Kept& e : early.take(group)) dispatch(e.from, e.message);
}

// The others hold the group for made: they learn that our ranks will do nothing.
void Engine::Impl::not_made(const Opening::Formed& formed, const Error& why) {
    context.ports.log.warn("group_not_made", {field("group", formed.group.group), field("why", why.text)});
    std::set<link::PeerIndex> peers;
    for (const auto& member : formed.group.members)
        if (const auto peer = context.find_peer(member.node); peer && member.node != context.config.self)
            peers.insert(*peer);
    for (const link::PeerIndex peer : peers)
        for (const auto& l : formed.locals)
            context.send(peer,
                         wire::RankGone{formed.group.group, formed.group.epoch, l.rank, 0, true, why.text});
    answer_all(formed, why);
}

void Engine::Impl::answer_all(const Opening::Formed& formed, const Error& why) {
    for (const auto& l : formed.locals)
        if (!l.gone) on_opening(Opening::Answer{l.session, l.ticket, why});
}

void Engine::Impl::on_opening(const Opening::Formed& formed) {
    std::vector<LocalRank> local;
    for (const auto& l : formed.locals) local.push_back({l.rank, l.session, 0, false});
    const GroupId& id = formed.group.group;
    if (groups.contains(id) || finished.contains(id))  // the other group must not hear of it
        return answer_all(formed, {Errc::protocol_error,
                                   "the node that formed the group gave it the id of another one",
                                   -1,
                                   -1,
                                   {}});
    if (const Result<void> made = make_group(formed.group, local); !made)
        return not_made(formed, made.error());
    Group* group = find(formed.group.group);
    GroupInfo info;
    info.id = formed.group.group;
    info.epoch = GroupEpoch(formed.group.epoch);
    info.size = group->facts.size();
    info.segment_bytes = collectives::segment_bytes_of(group->facts.layout, group->facts.table);  // [S12]
    for (const auto& member : formed.group.members)
        info.members.push_back({Rank(member.rank), member.node, member.pid});
    for (size_t i = 0; i < formed.locals.size(); ++i) {
        const auto& l = formed.locals[i];
        info.rank = Rank(l.rank);
        const bool gone = l.gone || !sessions.contains(l.session);
        if (gone)
            group->leave(group->locals()[i], Leaving::crashed, "it ended while the group was being made");
        else
            context.ports.clients.group_opened(l.session, l.ticket, info);
    }
    replay_early(info.id);
}

Result<void> Engine::Impl::make_group(const wire::GroupPrepare& prepare,
                                      const std::vector<LocalRank>& ranks) {
    GroupFacts facts;
    facts.id = prepare.group;
    facts.epoch = GroupEpoch(prepare.epoch);
    facts.name = prepare.name;
    facts.members = prepare.members;
    facts.features = rendezvous::common_features(prepare.members);
    facts.table = table_of(prepare.plan);
    facts.timeouts = timeouts_of(prepare.timeouts);
    if (groups.contains(prepare.group)) return {};  // said twice
    if (groups.size() >= context.config.groups_max)
        return fail(Errc::table_full,
                    "this daemon has " + std::to_string(groups.size()) + " groups, the most it keeps");
    NEXAR_TRY_VOID(facts.table.check());
    const size_t own_shards = std::min<size_t>(context.ports.meshes.size() - 1, context.config.bulk_shards);
    facts.bulk_shards = prepare.plan.bulk_shards == 0 ? static_cast<uint32_t>(std::max<size_t>(1, own_shards))
                                                      : prepare.plan.bulk_shards;
    if (facts.bulk_shards > std::max<size_t>(1, own_shards))
        return fail(Errc::protocol_error, "the group counts on " + std::to_string(facts.bulk_shards) +
                                              " bulk shards of each node, this one has " +
                                              std::to_string(own_shards));
    facts.table_hash = facts.table.hash();

    std::map<NodeId, uint32_t> numbers;
    std::vector<uint32_t> placement;
    std::vector<LocalRank> local;
    for (uint32_t rank = 0; rank < facts.size(); ++rank) {
        const NodeId& node = facts.members[rank].node;
        const auto [it, first] = numbers.try_emplace(node, static_cast<uint32_t>(facts.nodes.size()));
        if (first) {
            facts.nodes.push_back(node);
            facts.hosts.push_back(context.host_of(node));
        }
        placement.push_back(it->second);
        if (node != context.config.self) continue;
        if (local.size() >= ranks.size() || ranks[local.size()].rank != rank)
            return fail(Errc::invalid_argument,
                        "the ranks of this node and the sessions for them do not fit");
        local.push_back(ranks[local.size()]);
    }
    if (local.empty()) return fail(Errc::invalid_argument, "the group has no rank on this node");
    facts.layout = collectives::Layout(placement);
    facts.self = facts.layout.node_of(local[0].rank);
    std::vector<membership::GroupNode> watched;
    for (const NodeId& node : facts.nodes) {
        const auto peer = context.find_peer(node);
        if (node != context.config.self && !peer)
            return fail(Errc::peer_lost, "this node has no link to node " + node.short_hex());
        facts.peers.push_back(peer.value_or(link::PeerIndex{}));
        const NodeIndex index(static_cast<uint32_t>(facts.peers.size()) - 1);
        const uint32_t lowest = facts.layout.ranks_on(index)[0];
        Incarnation life = facts.members[lowest].life;  // the group's word counts, not whom we see now
        if (life == Incarnation{}) life = peer ? context.peer(*peer).incarnation : context.config.incarnation;
        watched.push_back({node, life, lowest, {}});
    }
    const GroupId id = facts.id;
    const GroupEpoch epoch = facts.epoch;
    for (LocalRank& mine : local) {
        const auto it = sessions.find(mine.session);
        if (it == sessions.end()) continue;
        it->second.groups.push_back(id);
        mine.account = it->second.account;
    }
    groups.emplace(id, std::make_unique<Group>(context, *this, timers, std::move(facts), std::move(local)));
    watch.on_group(id, epoch, std::move(watched));
    return {};
}

namespace {

// The group that a message is about, and whether its epoch is ours.
template <class M>
concept AboutGroup = requires(const M& m) { m.group; };
template <class M>
concept HasEpoch = requires(const M& m) { m.epoch; };

struct ToGroup {
    Group& group;
    NodeIndex node;
    link::PeerIndex peer;

    void operator()(const wire::RankGone& m) const { group.on_rank_gone(m); }
    void operator()(const wire::OpAbort& m) const { group.on_abort(m); }
    void operator()(const wire::OpAnnounce& m) const { group.on_announce(node, m); }
    void operator()(const wire::ArrivalQuery& m) const { group.on_arrival_query(peer, m); }
    void operator()(const wire::ArrivalReply& m) const { group.on_arrival_reply(node, m); }
    void operator()(const wire::MessageOffer& m) const { group.messages().on_offer(node, m); }
    void operator()(const wire::MessageWithdraw& m) const { group.messages().on_withdraw(node, m); }
    void operator()(const wire::MessageRefused& m) const { group.messages().on_refused(node, m); }
    void operator()(const wire::MessageCredit& m) const { group.messages().on_credit(node, m); }
    template <class M>
    void operator()(const M&) const {}
};

}  // namespace

void Engine::Impl::dispatch(link::PeerIndex from, const wire::Message& message) {
    if (watch.on_message(from, message) || opening.on_message(context.peer(from).node, message)) return;
    std::visit(
        [&]<class M>(const M& m) {
            if constexpr (AboutGroup<M>) {
                Group* group = find(m.group);
                if (group == nullptr) return keep_early(from, m.group, message);  // over here, or not begun
                if constexpr (HasEpoch<M>)
                    if (GroupEpoch(m.epoch) != group->facts.epoch) return;
                if (const auto node = group->node_of(from)) ToGroup{*group, *node, from}(m);
            }
        },
        message);
}

// [L7] What the rendezvous and the groups had sent each other over it is lost.
void Engine::Impl::log_discarded(link::PeerIndex index) {
    const PeerState& peer = context.peer(index);
    if (!peer.known) return;
    watch.on_log_discarded(index);
    opening.on_peer_down(peer.node, peer.incarnation);
    if (peer.up && watch.reachable(index)) opening.on_peer_up(peer.node, peer.incarnation);
}

void Engine::Impl::log_has_room() {
    for (const GroupId& id : std::exchange(context.groups_without_room, {}))
        if (Group* group = find(id)) group->messages().send_waiting();
}

Engine::Engine(const EngineConfig& config, const EnginePorts& ports, uint64_t seed)
    : impl_(std::make_unique<Impl>(config, ports, seed)) {}

Engine::~Engine() = default;

// ---- Sessions ----

Result<void> Engine::open(Time now, const OpenRequest& request) {
    impl_->context.now = now;
    impl_->sessions[request.session].account = link::Account(request.uid);
    const Result<void> result = impl_->opening.open(request);
    impl_->turn();
    return result;
}

Result<void> Engine::submit(Time now, const OpRequest& request) {
    impl_->context.now = now;
    Group* group = impl_->find(request.group);
    LocalRank* local = group == nullptr ? nullptr : group->find_local(request.session, request.rank);
    if (local == nullptr) return fail(Errc::not_found, "this session has no such rank of the group");
    Result<void> result = group->submit(*local, request);
    impl_->turn();
    if (!result) return fail(group->explained(std::move(result).error()));
    return result;
}

void Engine::cancel(Time now, SessionId session, uint64_t ticket) {
    impl_->context.now = now;
    const auto it = impl_->sessions.find(session);
    if (it == impl_->sessions.end()) return;
    if (impl_->opening.cancel(session, ticket)) {
        const Error cancelled{Errc::cancelled, "the open was cancelled", -1, -1, {}};
        impl_->context.ports.clients.group_opened(session, ticket, fail(cancelled));
        return impl_->turn();
    }
    for (const GroupId& id : it->second.groups)
        if (Group* group = impl_->find(id); group != nullptr && group->cancel(session, ticket)) break;
    impl_->turn();
}

void Engine::stage(Time now, SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) {
    impl_->context.now = now;
    const auto it = impl_->sessions.find(session);
    if (it == impl_->sessions.end()) return;
    for (const GroupId& id : it->second.groups)
        if (Group* group = impl_->find(id); group != nullptr && group->moved(session, ticket, filled, taken))
            break;
    impl_->turn();
}

Result<void> Engine::free_group(Time now, SessionId session, const GroupId& id, uint32_t rank) {
    impl_->context.now = now;
    Group* group = impl_->find(id);
    LocalRank* local = group == nullptr ? nullptr : group->find_local(session, rank);
    if (local == nullptr) return fail(Errc::not_found, "this session has no such rank of the group");
    if (local->left) return fail(Errc::closed, "this rank has left the group already");
    group->leave(*local, Leaving::freed, "it freed the group");
    if (!group->messages().has_sends_of(session)) impl_->part(session, id);  // they may still be cancelled
    impl_->turn();
    return {};
}

void Engine::session_ended(Time now, SessionId session, SessionEnd how, const std::string& reason) {
    impl_->context.now = now;
    const auto node = impl_->sessions.extract(session);  // from here on nothing is completed for it
    if (node.empty()) return;
    impl_->opening.session_ended(session);
    const bool crashed = how == SessionEnd::crashed || impl_->stopping;
    const Leaving leaving = how == SessionEnd::given_up ? Leaving::given_up
                            : crashed                   ? Leaving::crashed
                                                        : Leaving::closed;
    for (const GroupId& id : node.mapped().groups) {
        Group* group = impl_->find(id);
        if (group == nullptr) continue;
        for (LocalRank& local : group->locals())
            if (local.session == session) group->leave(local, leaving, reason);
    }
    impl_->turn();
}

// ---- Peers ----

void Engine::on_peer_up(Time now, link::PeerIndex index, const NodeId& node, const Incarnation& incarnation) {
    impl_->context.now = now;
    PeerState& peer = impl_->context.peer(index);
    peer = {node, incarnation, true, true};
    impl_->context.set_peer(node, index);
    impl_->watch.on_peer_up(index);
    impl_->opening.on_peer_up(node, incarnation);
    impl_->turn();
}

void Engine::on_peer_down(Time now, link::PeerIndex index, const std::string& reason, bool proof) {
    impl_->context.now = now;
    PeerState& peer = impl_->context.peer(index);
    if (!peer.known) return;
    peer.up = false;
    impl_->opening.on_peer_down(peer.node, peer.incarnation);
    impl_->watch.on_peer_down(index, reason, proof);
    impl_->turn();
}

void Engine::on_redial_failed(Time now, link::PeerIndex peer) {
    impl_->context.now = now;
    impl_->watch.on_redial_failed(peer);
    impl_->turn();
}

void Engine::on_heard(Time now, link::PeerIndex peer, Duration rtt) {
    impl_->context.now = now;
    impl_->watch.on_heard(peer, rtt);
}

void Engine::on_sent(Time now, link::PeerIndex peer) {
    impl_->context.now = now;
    impl_->watch.on_sent(peer);
}

void Engine::on_message(Time now, link::PeerIndex from, const wire::Message& message) {
    impl_->context.now = now;
    if (!impl_->context.peer(from).known) return;
    impl_->watch.on_heard(from);
    impl_->dispatch(from, message);
    impl_->turn();
}

void Engine::goodbye(Time now, const std::string& reason) {
    impl_->context.now = now;
    const Error error{Errc::daemon_lost, "the daemon is stopping: " + reason, -1, -1,
                      impl_->context.config.self.hex()};
    for (auto& [id, group] : impl_->groups) group->lose(error, false);
    impl_->stopping = true;
    impl_->turn();
}

// ---- Completions ----

void Engine::on_mesh_event(Time now, size_t, const link::MeshEvent& event) {
    impl_->context.now = now;
    switch (event.kind) {
        case link::MeshEvent::Kind::done:
            impl_->context.finished(event.handle, {});
            break;
        case link::MeshEvent::Kind::failed:
            impl_->context.finished(event.handle, event.text.empty()
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
    impl_->context.now = now;
    impl_->context.finished(handle, {});
    impl_->turn();
}

void Engine::on_time(Time now) {
    impl_->context.now = now;
    impl_->timers.run(now);
    if (impl_->watch.wake_at() <= now) impl_->watch.on_time();
    if (impl_->opening.wake_at() <= now) impl_->opening.on_time();
    impl_->turn();
}

Time Engine::wake_at() const {
    return std::min({impl_->timers.next(), impl_->watch.wake_at(), impl_->opening.wake_at()});
}

// ---- Looking ----

Snapshot Engine::snapshot(Time now) const {
    Snapshot out;
    for (const auto& [id, group] : impl_->groups) {
        GroupSnapshot g;
        g.id = id;
        g.epoch = group->facts.epoch;
        g.name = group->facts.name;
        g.nodes = group->facts.layout.nodes();
        g.failed = group->failed() ? group->explained(*group->failed()) : Error{};
        g.timeouts = group->facts.timeouts;
        g.ops_in_flight = group->runs_in_flight();
        g.messages_waiting = group->messages().offers_waiting();
        for (uint32_t rank = 0; rank < group->facts.size(); ++rank) {
            const auto& member = group->facts.members[rank];
            g.ranks.push_back({Rank(rank), member.node, member.pid, false, group->is_gone(rank), 0});
        }
        for (const LocalRank& local : group->locals()) {
            g.ranks[local.rank].local = true;
            g.ranks[local.rank].posted = local.posted;
        }
        for (const auto& [rank, gone] : group->gone()) g.ranks[rank].posted = gone.collectives_handed_over;
        out.groups.push_back(std::move(g));
        group->for_runs([&](const CollectiveRun& run) { out.ops.push_back(run.snapshot(now)); });
        group->messages().snapshot(now, out.messages);
    }
    out.forming = impl_->opening.snapshot();
    return out;
}

uint64_t Engine::groups_looked_at() const {
    return impl_->groups_looked_at;
}

bool Engine::quiet() const {
    if (impl_->context.pending() > 0) return false;
    for (const auto& [id, group] : impl_->groups)
        if (group->runs_in_flight() > 0 || !group->messages().idle()) return false;
    return true;
}

Result<void> Engine::install_group(Time now, const wire::GroupPrepare& group,
                                   std::span<const SessionId> sessions) {
    impl_->context.now = now;
    std::vector<LocalRank> local;
    for (const auto& member : group.members)
        if (member.node == impl_->context.config.self && local.size() < sessions.size())
            local.push_back({member.rank, sessions[local.size()], 0, false});
    for (SessionId session : sessions) impl_->sessions.try_emplace(session);
    const Result<void> result = impl_->make_group(group, local);
    if (result) impl_->replay_early(group.group);
    impl_->turn();
    return result;
}

}  // namespace nexar::engine
