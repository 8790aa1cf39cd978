// How the children of groups begin (docs/protocol/children.md). See engine_impl.hpp.
#include "engine/engine_impl.hpp"

namespace nexar::engine {

namespace {

Family family_in(const GroupId& id) {
    return {id.creator, id.incarnation};
}

}  // namespace

// Whether a group may still begin here about which this node has sent something.
bool Engine::Impl::awaits(link::PeerIndex from, const GroupId& group) {
    if (opening.awaits(group)) return true;
    const auto at = coming.find(family_in(group));
    const Group* parent = at == coming.end() ? nullptr : find(at->second);
    return parent != nullptr && parent->node_of(from).has_value();
}

void Engine::Impl::children_coming(const Family& family, const GroupId& parent) {
    coming.emplace(family, parent);
}

// What was kept for children that were not made here is answered as for any unknown group.
void Engine::Impl::children_done(const Family& family) {
    coming.erase(family);
    for (const EarlyMessages::Kept& e : early.take(family)) dispatch(e.from, e.message);
}

Result<GroupInfo> Engine::Impl::make_child(GroupFacts facts, std::vector<LocalRank> local) {
    const GroupId id = facts.id;
    if (groups.contains(id) || finished.contains(id))
        return fail(Errc::protocol_error, "the child has the id of another group");
    Group& group = begin_group(std::move(facts), std::move(local));
    for (LocalRank& mine : group.locals())
        if (!sessions.contains(mine.session))
            group.leave(mine, Leaving::crashed, "it ended while the group was being made");
    replay_early(id);
    return info_of(group.facts);
}

void Engine::Impl::give_up_child(const GroupId& id, const Error& error) {
    giving_up.emplace_back(id, error);  // there may be as many as ranks [G11]
}

}  // namespace nexar::engine
