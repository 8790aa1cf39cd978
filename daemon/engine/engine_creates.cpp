// Groups that are created from a list of ranks (docs/protocol/children.md [Y9]-[Y15]). See engine_impl.hpp.
#include <algorithm>
#include <set>

#include "core/features.hpp"
#include "engine/engine_impl.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

using collectives::NodeIndex;

Result<void> Engine::Impl::create(const OpenRequest& request, const ChargeRef& charge) {
    const CreateRequest& wanted = *request.create;
    Group* parent = find(wanted.parent);
    LocalRank* local = parent == nullptr ? nullptr : parent->find_local(request.session, wanted.rank);
    if (local == nullptr) return fail(Errc::not_found, "this session has no such rank of the group");
    const auto creation = begin_creation(*parent, *local, wanted);
    if (!creation) return fail(parent->explained(creation.error()));
    NEXAR_TRY_VOID(opening.open(open_of(request, **creation), charge, creation->get()));
    const Creates::Call call{request.session, request.ticket, wanted.rank};
    Creates::Entry& entry = creates.add(*creation, call, parent->user());
    entry.pause = context.config.late_after;
    entry.wake_at(context.now + entry.pause);
    return {};
}

Result<CreationRef> Engine::Impl::begin_creation(Group& parent, const LocalRank& local,
                                                 const CreateRequest& wanted) {
    if (local.left) return fail(Errc::closed, "this rank has left the group " + parent.facts.name);
    if (!context.config.proof.hmac_sha256) return fail(Errc::unsupported, "this daemon makes no children");
    NEXAR_TRY_VOID(check_list(parent.facts, local.rank, wanted.ranks));
    if (parent.failed()) return fail(*parent.failed());
    for (const uint32_t rank : wanted.ranks)
        if (const auto gone = parent.departure_error(rank, false)) return fail(*gone);
    CreationRef same;
    for (const Creates::Entry* entry : creates.of(wanted.parent)) {
        if (entry->what->tag != wanted.tag) continue;
        if (std::ranges::find(entry->calls, local.rank, &Creates::Call::rank) != entry->calls.end())
            return fail(Errc::bad_state, "rank " + std::to_string(local.rank) + " creates a group with tag " +
                                             std::to_string(wanted.tag) +
                                             " already: wait for it, or give each its own tag");
        if (entry->what->ranks == wanted.ranks) same = entry->what;
    }
    if (same) return same;
    if (const auto differs = end_different(parent, wanted, {local.rank})) return fail(*differs);
    return std::make_shared<const Creation>(
        creation_of(parent.facts, context.config.proof, wanted.ranks, wanted.tag));
}

// [Y13] A rank that has given this list and one that has given another wait for each other: the calls of this
// node with the other list end. What an attempt has may be made all the same, and is looked at again later.
template <class Call>
std::optional<Error> Engine::Impl::end_different(const Group& parent, const Call& theirs,
                                                 const std::vector<uint32_t>& callers) {
    std::optional<Error> out;
    for (Creates::Entry* entry : creates.of(parent.facts.id)) {
        const Creation& ours = *entry->what;
        if (ours.tag != theirs.tag || ours.ranks == theirs.ranks) continue;
        const auto a = std::ranges::find_if(callers, [&](uint32_t rank) { return ours.index_of(rank) >= 0; });
        const auto b = std::ranges::find_if(entry->calls, [&](const Creates::Call& call) {
            return std::ranges::find(theirs.ranks, call.rank) != theirs.ranks.end() &&
                   !opening.is_reserved(call.session, call.ticket);
        });
        if (a == callers.end() || b == entry->calls.end()) continue;
        out =
            parent.explained(lists_differ(parent.facts, ours.tag, {*a, theirs.ranks}, {b->rank, ours.ranks}));
        ask_about(*entry);  // so the other node sees it, too
        for (Creates::Call& call : entry->calls) end_create(call, *out);
    }
    return out;
}

void Engine::Impl::end_create(Creates::Call& call, const Error& error) {
    call.ended_here = true;
    opening.end(call.session, call.ticket, error);
}

void Engine::Impl::on_late_create(Creates::Entry& entry) {
    if (entry.pause == context.config.late_after) {
        const Group* parent = find(entry.what->parent);
        std::string here;
        for (const Creates::Call& call : entry.calls)
            here += (here.empty() ? "" : ", ") + std::to_string(call.rank);
        context.ports.log.warn(parent ? parent->tenant() : nullptr, context.now, "create_late",
                               {field("name", entry.what->name), field("parent", entry.what->parent),
                                field("ranks_here", here), field("size", entry.what->ranks.size())});
    }
    ask_about(entry);
    entry.pause = std::min(2 * entry.pause, context.config.ask_again_max);
    entry.wake_at(context.now + entry.pause);
}

// States to the nodes of the other listed ranks which list was given here. Without room in a log it does
// later [L8].
void Engine::Impl::ask_about(const Creates::Entry& entry) {
    Group* parent = find(entry.what->parent);
    if (parent == nullptr || (parent->facts.features & feature_of_create_query) == 0) return;
    const LocalRank* payer = parent->find_local(entry.calls.front().session, entry.calls.front().rank);
    if (payer == nullptr) return;
    wire::CreateQuery query{
        entry.what->parent, parent->facts.epoch.value, entry.what->tag, entry.what->ranks, {}};
    for (const Creates::Call& call : entry.calls) query.callers.push_back(call.rank);
    const auto bytes = wire::encode(query);
    std::set<uint32_t> nodes;
    for (const uint32_t rank : entry.what->ranks) nodes.insert(parent->facts.layout.node_of(rank).value);
    nodes.erase(parent->facts.self.value);
    for (const uint32_t node : nodes) {
        const link::PeerIndex peer = parent->facts.peers[node];
        if (context.ports.peers.reserve(peer, payer->account, link::ControlLog::cost_of(bytes.size())))
            context.ports.peers.append(peer, bytes, payer->account);
    }
}

void Engine::Impl::on_create_query(const Group& group, NodeIndex from, const wire::CreateQuery& query) {
    const auto is_theirs = [&](uint32_t rank) {
        return rank < group.facts.size() && group.facts.layout.node_of(rank) == from;
    };
    // More than there are: a lie, and long to look through.
    if (query.callers.size() > group.facts.layout.ranks_on(from).size() ||
        query.ranks.size() > group.facts.size())
        return;
    if (std::ranges::all_of(query.callers, is_theirs)) end_different(group, query, query.callers);
}

// [Y12]
void Engine::Impl::rank_left(const GroupId& id, uint32_t rank) {
    const Group* group = find(id);
    for (Creates::Entry* entry : creates.of(id)) {
        if (group == nullptr || entry->what->index_of(rank) < 0) continue;
        const auto gone = group->departure_error(rank, true);
        for (Creates::Call& call : entry->calls) {
            if (call.rank == rank)
                end_create(call, {Errc::closed, "the parent was left by this rank", -1, -1, {}});
            else if (gone)
                end_create(call, group->explained(*gone));
        }
    }
}

void Engine::Impl::end_creates(const Group& parent, const Error& error) {
    for (Creates::Entry* entry : creates.of(parent.facts.id))
        for (Creates::Call& call : entry->calls) end_create(call, parent.explained(error));
}

// The rendezvous names ranks of the group that is not there; the caller knows those of the parent.
Error Engine::Impl::of_parent(const Creation& creation, Error error) {
    const auto translate = [&](int64_t& rank) {
        if (rank >= 0 && rank < static_cast<int64_t>(creation.ranks.size()))
            rank = creation.ranks[static_cast<size_t>(rank)];
    };
    const bool incomplete = error.code == Errc::group_incomplete && error.rank >= 0;
    if (incomplete && error.rank < static_cast<int64_t>(creation.members.size())) {
        const auto& member = creation.members[static_cast<size_t>(error.rank)];
        error.node = member.node.hex();
        error.pid = member.pid;
        error.text = "rank " + std::to_string(creation.ranks[static_cast<size_t>(error.rank)]) + " of " +
                     creation.parent_name + " (node " + member.node.short_hex() + ", pid " +
                     std::to_string(member.pid) + ") has not called: " + error.text;
    }
    translate(error.rank);
    translate(error.other_rank);
    return error;
}

}  // namespace nexar::engine
