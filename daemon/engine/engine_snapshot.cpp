// Engine's answers for nexarctl: all that there is, or what one tenant may know.
#include <algorithm>

#include "engine/engine_impl.hpp"

namespace nexar::engine {

namespace {

GroupSnapshot snapshot_of(const Group& group) {
    GroupSnapshot g;
    g.id = group.facts.id;
    g.epoch = group.facts.epoch;
    g.name = group.facts.name;
    g.parent = group.facts.parent;
    g.parent_name = group.facts.parent_name;
    g.nodes = group.facts.layout.nodes();
    g.failed = group.failed() ? group.explained(*group.failed()) : Error{};
    g.frozen = group.is_agreeing();
    g.timeouts = group.facts.timeouts;
    if (const Tenant* tenant = group.tenant()) g.opener_mark = tenant->name.mark();
    g.ops_in_flight = group.runs_in_flight();
    g.messages_waiting = group.messages().offers_waiting();
    for (uint32_t rank = 0; rank < group.facts.size(); ++rank) {
        const auto& member = group.facts.members[rank];
        g.ranks.push_back({Rank(rank), member.node, member.pid, false, group.has_departed(rank), 0});
    }
    for (const LocalRank& local : group.locals()) {
        g.ranks[local.rank].local = true;
        g.ranks[local.rank].posted = local.posted;
    }
    for (const auto& [rank, gone] : group.departed()) g.ranks[rank].posted = gone.collectives_handed_over;
    return g;
}

// Adds the group, its operations and messages, while `rows` are left.
void show(Time now, const Group& group, size_t& rows, Snapshot& out) {
    const size_t size = group.facts.size();
    const auto take = [&](size_t count, size_t& omitted) {
        const bool fits = rows > 0;
        rows -= std::min(rows, count);
        if (!fits) ++omitted;
        return fits;
    };
    if (!take(size, out.omitted_groups)) return;
    out.groups.push_back(snapshot_of(group));
    group.for_runs([&](const CollectiveRun& run) {
        if (take(size, out.omitted_ops)) out.ops.push_back(run.snapshot(now));
    });
    const size_t before = out.messages.size();
    out.omitted_messages += group.messages().snapshot(now, rows, out.messages);
    rows -= std::min(rows, out.messages.size() - before);
}

}  // namespace

Snapshot Engine::snapshot(Time now) const {
    Snapshot out;
    size_t rows = SIZE_MAX;
    for (const auto& [id, group] : impl_->groups) show(now, *group, rows, out);
    out.forming = impl_->opening.snapshot(now, [](SessionId) { return true; });
    out.in_cluster = impl_->context.in_cluster();
    return out;
}

Snapshot Engine::snapshot(Time now, const SnapshotScope& scope) const {
    const auto is_own = [&](SessionId id) {
        const auto found = impl_->sessions.find(id);
        return found != impl_->sessions.end() && found->second.tenant &&
               found->second.tenant->name == scope.tenant;
    };
    std::set<GroupId> own;  // in an order that is the same each time
    for (const auto& [id, session] : impl_->sessions)
        if (is_own(id)) own.insert(session.groups.begin(), session.groups.end());
    Snapshot out;
    size_t rows = scope.rows_max;
    for (const GroupId& id : own) {
        const Group* const group = impl_->find(id);
        if (group == nullptr) continue;
        const bool wanted =
            scope.group.empty() || scope.group == group->facts.name || scope.group == id.text();
        if (wanted) show(now, *group, rows, out);
    }
    out.forming = impl_->opening.snapshot(now, is_own);
    out.in_cluster = impl_->context.in_cluster();
    return out;
}

}  // namespace nexar::engine
