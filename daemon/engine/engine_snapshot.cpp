// Engine's answers for nexarctl: all that there is, or what one tenant may know.
#include <algorithm>

#include "engine/engine_impl.hpp"

namespace nexar::engine {

namespace {

GroupSnapshot snapshot_of(const Group& group, size_t ranks_max) {
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
    g.table = group.facts.table;
    if (const Tenant* tenant = group.tenant()) g.opener_mark = tenant->name.mark();
    g.ops_in_flight = group.runs_in_flight();
    g.messages_waiting = group.messages().offers_waiting();
    g.size = group.facts.size();
    g.ranks.reserve(std::min(g.size, ranks_max));
    for (uint32_t rank = 0; rank < std::min(g.size, ranks_max); ++rank) {
        const auto& member = group.facts.members[rank];
        g.ranks.push_back({Rank(rank), member.node, member.pid, false, group.has_departed(rank), 0});
    }
    const auto posted = [&](uint32_t rank, uint64_t collectives) {
        g.next_op = std::max(g.next_op, collectives);
        if (rank < g.ranks.size()) g.ranks[rank].posted = collectives;
    };
    for (const LocalRank& local : group.locals()) {
        if (local.rank < g.ranks.size()) g.ranks[local.rank].local = true;
        posted(local.rank, local.posted);
    }
    for (const auto& [rank, gone] : group.departed()) posted(rank, gone.collectives_handed_over);
    return g;
}

// Collects groups with their operations and messages until one of the scope's bounds is reached.
class Page {
  public:
    Page(Time now, const SnapshotScope& scope, Snapshot& out)
        : now_(now), scope_(scope), out_(out), rows_(scope.rows_max) {}

    bool is_full() const { return rows_ == 0 || out_.groups.size() >= scope_.groups_max; }
    void show(const Group& group) {
        const size_t size = group.facts.size();
        out_.groups.push_back(snapshot_of(group, scope_.ranks_max));
        pay(size);
        size_t left_out = group.runs_in_flight();
        group.for_runs([&](const CollectiveRun& run) {
            if (rows_ == 0 || out_.ops.size() >= scope_.ops_max) return false;
            out_.ops.push_back(run.snapshot(now_));
            pay(size);
            --left_out;
            return true;
        });
        out_.omitted_ops += left_out;
        const size_t before = out_.messages.size();
        const size_t most = std::min(rows_, scope_.messages_max - std::min(scope_.messages_max, before));
        out_.omitted_messages += group.messages().snapshot(now_, most, out_.messages);
        pay(out_.messages.size() - before);
    }
    size_t looked_at() const { return looked_at_; }

  private:
    void pay(size_t rows) {
        rows_ -= std::min(rows_, rows);
        looked_at_ += rows;
    }

    const Time now_;
    const SnapshotScope& scope_;
    Snapshot& out_;
    size_t rows_;
    size_t looked_at_ = 0;
};

SnapshotScope unbounded() {
    constexpr size_t all = SIZE_MAX;
    return {{}, {}, all, all, all, all, all, all};
}

}  // namespace

Snapshot Engine::snapshot(Time now) const {
    return snapshot(now, unbounded());
}

Snapshot Engine::snapshot(Time now, const SnapshotScope& scope) const {
    const GroupIndex::Scope& groups =
        scope.tenant ? impl_->group_index.of(*scope.tenant) : impl_->group_index.all();
    Snapshot out;
    Page page(now, scope, out);
    groups.each(scope.group, [&](const GroupId& id) {
        if (page.is_full()) return false;
        page.show(*impl_->find(id));
        return true;
    });
    out.omitted_groups = groups.count(scope.group) - out.groups.size();
    impl_->opening.snapshot(now, scope, out);
    out.in_cluster = impl_->context.in_cluster();
    impl_->rows_looked_at += page.looked_at();
    return out;
}

}  // namespace nexar::engine
