// How groups begin, what their nodes' failures do to them, and how they go. See engine_impl.hpp.
#include <algorithm>
#include <utility>

#include "core/check.hpp"
#include "engine/engine_impl.hpp"
#include "engine/records.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

// One entry for each rank that the session has in the group.
void Engine::Impl::detach(SessionId session, const GroupId& id) {
    const auto it = sessions.find(session);
    if (it == sessions.end()) return;
    std::vector<GroupId>& groups_of_session = it->second.groups;
    if (const auto at = std::ranges::find(groups_of_session, id); at != groups_of_session.end())
        groups_of_session.erase(at);
}

void Engine::Impl::unlist(const Group& group, LocalRank& local) {
    if (!std::exchange(local.listed, false)) return;
    group_index.remove_rank(group.facts.id, group.facts.name, local.tenant->name);
}

void Engine::Impl::remove_finished() {
    for (const GroupId& id : std::exchange(finishing, {})) {
        const auto it = groups.find(id);
        if (it == groups.end() || !it->second->finished()) continue;
        ++groups_visited;
        for (MeshPort* mesh : context.ports.meshes) mesh->forget_group(id);
        watch.on_group_gone(id);
        for (LocalRank& local : it->second->locals()) {
            detach(local.session, id);
            unlist(*it->second, local);
        }
        group_index.remove(id, it->second->facts.name);
        for (const NodeId& node : it->second->facts.nodes) {
            const auto at = groups_of_node.find(node);
            if (at != groups_of_node.end() && at->second.erase(id) > 0 && at->second.empty())
                groups_of_node.erase(at);
        }
        const GroupFacts& facts = it->second->facts;
        std::vector<link::PeerIndex> members;
        for (size_t i = 0; i < facts.nodes.size(); ++i)
            if (NodeIndex(static_cast<uint32_t>(i)) != facts.self) members.push_back(facts.peers[i]);
        finished.add(id, it->second->decided_cut(), std::move(members));
        groups.erase(it);
        opening.group_ended(id);
    }
}

void Engine::Impl::reach_changed(const Watch::Reach& reach) {
    if (reach.reachable)
        opening.on_peer_up(reach.node, reach.incarnation);
    else
        opening.on_peer_down(reach.node, reach.incarnation);
    const auto at = groups_of_node.find(reach.node);
    if (at == groups_of_node.end()) return;
    for (const GroupId& id : at->second) {
        ++groups_visited;
        groups.at(id)->reach_changed(reach.node);
    }
}

void Engine::Impl::group_cut(const GroupId& id, uint64_t seq, const Error& error) {
    const Group& group = *groups.at(id);
    context.ports.log.warn(
        group.tenant(), context.now, "group_failed",
        {field("group", id), field("name", group.facts.name), field("cut", seq), field("why", error.text)});
    watch.on_group_gone(id);
    creates.parent_ended(group, error);
}

void Engine::Impl::rank_left(const GroupId& id, uint32_t rank) {
    if (const Group* group = find(id)) creates.rank_left(*group, rank);
}

// For the other nodes the group exists: they receive that the ranks of this node have failed.
void Engine::Impl::report_not_made(const Opening::Formed& formed, const Error& why) {
    Tenant* tenant = nullptr;
    for (const auto& l : formed.locals)
        if (const auto at = sessions.find(l.session); at != sessions.end()) tenant = at->second.tenant.get();
    context.ports.log.warn(tenant, context.now, "group_not_made",
                           {field("group", formed.group.group), field("why", why.text)});
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

void Engine::Impl::on_opening(const Opening::Answer& answer) {
    const Error error = creates.explained(answer);
    creates.remove(answer.session, answer.ticket);
    if (sessions.contains(answer.session))
        context.ports.clients.group_opened(answer.session, answer.ticket, fail(with_host(error)));
}

void Engine::Impl::on_opening(const Opening::Lost& lost) {
    Group* group = find(lost.group);
    if (group == nullptr) return;
    for (const auto& member : group->facts.members)
        if (member.node == lost.node)
            return group->node_failed(lost.node, membership::rank_lost(lost.node, member.rank, lost.reason));
}

void Engine::Impl::answer_all(const Opening::Formed& formed, const Error& why) {
    for (const auto& l : formed.locals)
        if (!l.gone) on_opening(Opening::Answer{l.session, l.ticket, why});
}

void Engine::Impl::on_opening(const Opening::Formed& formed) {
    std::vector<LocalRank> local;
    CreationRef creation;
    for (const auto& l : formed.locals) {
        local.push_back({l.rank, l.session, 0, false, {}, l.charge});
        if (CreationRef of_call = creates.take(l.session, l.ticket)) creation = std::move(of_call);
    }
    const GroupId& id = formed.group.group;
    if (groups.contains(id) || finished.contains(id)) {  // that group is not affected
        if (!groups.contains(id)) opening.group_ended(id);
        return answer_all(formed, {Errc::protocol_error,
                                   "the node that formed the group gave it the id of another one",
                                   -1,
                                   -1,
                                   {}});
    }
    const auto secret = secret_of(id, formed.proof, context.config.proof);
    if (const Result<void> made = make_group(formed.group, std::move(local), secret, creation.get()); !made) {
        opening.group_ended(id);
        return report_not_made(formed, made.error());
    }
    Group* group = find(formed.group.group);
    GroupInfo info = info_of(group->facts);
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

// What the group's nodes agreed on, if this daemon can do it.
Result<GroupFacts> Engine::Impl::facts_of(const wire::GroupPrepare& prepare) const {
    GroupFacts facts;
    facts.id = prepare.group;
    facts.epoch = GroupEpoch(prepare.epoch);
    facts.name = prepare.name;
    facts.members = prepare.members;
    facts.features = rendezvous::common_features(prepare.members);
    facts.table = table_of(prepare.plan);
    facts.timeouts = timeouts_of(prepare.timeouts);
    NEXAR_TRY_VOID(facts.table.check());
    const size_t own_shards = std::min<size_t>(context.ports.meshes.size() - 1, context.config.bulk_shards);
    const size_t shards_max = std::max<size_t>(1, own_shards);
    facts.bulk_shards =
        prepare.plan.bulk_shards == 0 ? static_cast<uint32_t>(shards_max) : prepare.plan.bulk_shards;
    if (facts.bulk_shards > shards_max)
        return fail(Errc::protocol_error, "the group counts on " + std::to_string(facts.bulk_shards) +
                                              " bulk shards of each node, this one has " +
                                              std::to_string(own_shards));
    facts.table_hash = facts.table.hash(facts.bulk_shards);
    return place(std::move(facts));
}

// Nodes are numbered in the order of their lowest ranks.
Result<GroupFacts> Engine::Impl::place(GroupFacts facts) const {
    std::map<NodeId, uint32_t> numbers;
    std::vector<uint32_t> placement;
    for (const auto& member : facts.members) {
        const auto [it, first] = numbers.try_emplace(member.node, static_cast<uint32_t>(facts.nodes.size()));
        placement.push_back(it->second);
        if (!first) continue;
        const auto peer = context.find_peer(member.node);
        if (member.node != context.config.self && !peer)
            return fail(Errc::peer_lost, "this node has no link to node " + member.node.short_hex());
        facts.nodes.push_back(member.node);
        facts.hosts.push_back(context.host_of(member.node));
        facts.peers.push_back(peer.value_or(link::PeerIndex{}));
    }
    const auto self = numbers.find(context.config.self);
    if (self == numbers.end()) return fail(Errc::invalid_argument, "the group has no rank on this node");
    facts.layout = collectives::Layout(placement);
    facts.self = NodeIndex(self->second);
    return facts;
}

// The incarnations that the group was made with: they count, not those that this node sees now.
std::vector<membership::GroupNode> Engine::Impl::nodes_to_watch(const GroupFacts& facts) {
    std::vector<membership::GroupNode> out;
    for (uint32_t i = 0; i < facts.nodes.size(); ++i) {
        const NodeIndex node(i);
        const uint32_t lowest = facts.layout.ranks_on(node)[0];
        Incarnation incarnation = facts.members[lowest].incarnation;
        if (incarnation == Incarnation{})
            incarnation =
                node == facts.self ? context.config.incarnation : context.peer(facts.peers[i]).incarnation;
        out.push_back({facts.nodes[i], incarnation, lowest});
    }
    return out;
}

Result<void> Engine::Impl::make_group(const wire::GroupPrepare& prepare, std::vector<LocalRank> local,
                                      const rendezvous::ProofKey& secret, const Creation* creation) {
    if (groups.size() >= context.config.groups_max)
        return fail(Errc::table_full,
                    "this daemon has " + std::to_string(groups.size()) + " groups, the most it keeps");
    NEXAR_TRY(GroupFacts facts, facts_of(prepare));
    if (!std::ranges::equal(facts.layout.ranks_on(facts.self), local, {}, {}, &LocalRank::rank))
        return fail(Errc::invalid_argument, "the ranks of this node and the sessions for them do not fit");
    facts.secret = secret;
    if (creation) {
        if (const auto wrong = contradiction(*creation, prepare)) return fail(*wrong);
        facts.parent = creation->parent;
        facts.root = creation->root;
        facts.parent_name = creation->parent_name;
        facts.root_ranks = creation->root_ranks();
    }
    begin_group(std::move(facts), std::move(local));
    return {};
}

Group& Engine::Impl::begin_group(GroupFacts facts, std::vector<LocalRank> local) {
    const GroupId id = facts.id;
    for (const NodeId& node : facts.nodes)
        if (node != context.config.self) groups_of_node[node].insert(id);
    for (LocalRank& mine : local) {
        const auto it = sessions.find(mine.session);
        if (it == sessions.end()) continue;
        it->second.groups.push_back(id);
        mine.account = it->second.account;
        mine.tenant = it->second.tenant;
        mine.listed = mine.tenant != nullptr;
        if (mine.listed) group_index.add_rank(id, facts.name, mine.tenant->name);
    }
    group_index.add(id, facts.name);
    auto watched = nodes_to_watch(facts);
    const GroupEpoch epoch = facts.epoch;
    auto made = std::make_unique<Group>(context, *this, timers, std::move(facts), std::move(local));
    Group& group = *groups.emplace(id, std::move(made)).first->second;
    watch.on_group(id, epoch, std::move(watched));
    return group;
}

GroupInfo Engine::Impl::info_of(const GroupFacts& facts) {
    GroupInfo info;
    info.id = facts.id;
    info.epoch = facts.epoch;
    info.size = facts.size();
    info.segment_bytes = collectives::segment_bytes_of(facts.layout, facts.table);  // [S12]
    const collectives::PlanTable& t = facts.table;
    info.plan = {t.version,       t.lanes,           t.chunk_bytes,       facts.bulk_shards,
                 t.segment_bytes, t.small_bytes_max, t.doubling_bytes_max};
    std::vector<GroupMember> members;
    std::vector<uint32_t> before(facts.nodes.size());  // ranks of each node
    for (const auto& member : facts.members) {
        const NodeIndex node = facts.layout.node_of(member.rank);
        members.push_back({Rank(member.rank), member.node, member.pid, facts.hosts[node.value],
                           before[node.value]++, static_cast<uint32_t>(facts.layout.ranks_on(node).size())});
    }
    info.members = std::move(members);
    info.name = facts.name;
    info.timeouts = facts.timeouts;
    info.parent = facts.parent;
    info.root = facts.root;
    info.parent_name = facts.parent_name;
    info.root_ranks = facts.root_ranks;
    return info;
}

void Engine::Impl::check_invariants() const {
    watch.check_invariants();
    opening.check_invariants();
    creates.check_invariants();
    NEXAR_CHECK(opening.groups() <= groups.size());  // [R32]
    size_t memberships = 0;
    NEXAR_CHECK(group_index.all().size() == groups.size());
    for (const auto& [id, group] : groups) {
        group->check_invariants();
        NEXAR_CHECK(group_index.all().count(group->facts.name) > 0);
        for (const LocalRank& local : group->locals())
            NEXAR_CHECK(!local.listed || group_index.of(local.tenant->name).count(id.text()) > 0);
        NEXAR_CHECK(!finished.contains(id));
        for (const NodeId& node : group->facts.nodes) {
            if (node == context.config.self) continue;
            ++memberships;
            NEXAR_CHECK(groups_of_node.at(node).contains(id));
        }
    }
    for (const auto& [node, ids] : groups_of_node) {
        NEXAR_CHECK(!ids.empty());
        memberships -= ids.size();
    }
    NEXAR_CHECK(memberships == 0);
    for (const auto& [family, parent] : coming) NEXAR_CHECK(groups.contains(parent));
    finished.check_invariants();
    for (const auto& [session, entry] : sessions) {
        for (const GroupId& id : entry.groups) NEXAR_CHECK(groups.contains(id));
        for (const auto& [ticket, request] : entry.requests) NEXAR_CHECK(groups.contains(request.group));
    }
}

}  // namespace nexar::engine
