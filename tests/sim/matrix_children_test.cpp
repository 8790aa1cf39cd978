// Splits and duplicates that a rank cancels, or whose deadline passes, at every event of them
// (matrix.hpp): whole children work, of half ones every member that has it learns the end, and the parent
// goes on.
#include <map>

#include "family.hpp"
#include "matrix.hpp"

namespace nexar::sim {
namespace {

constexpr uint32_t ranks = 4;
const std::vector<std::vector<uint32_t>> placements = {{0, 1, 2, 0}, {0, 0, 1, 1}, {0, 0, 0, 0}};

class Trial {
  public:
    Trial(uint64_t seed, OpKind kind, const std::vector<uint32_t>& placement, const Hit* hit,
          const std::vector<Time>* began)
        : cluster(seed, shape()), family(cluster, cluster.make_group(placement)) {
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            Duration timeout{-1};
            if (hit != nullptr && is_late(*hit, rank)) timeout = hit->at - (*began)[rank];
            ++cluster.to_be_submitted;
            cluster.clock.after(cluster.clock.some(40us), [this, kind, rank, timeout] {
                --cluster.to_be_submitted;
                family.start(kind, rank, {rank % 2, -int64_t{rank}}, timeout);
            });
        }
    }
    static ClusterShape shape() {
        ClusterShape out = shape_of(3);
        out.collective_timeout = Duration{0};
        return out;
    }
    static bool is_late(const Hit& hit, uint32_t rank) {
        return hit.blow != Blow::cancel &&
               rank == (hit.blow == Blow::both ? (hit.rank + 1) % ranks : hit.rank);
    }
    bool is_over() const { return cluster.to_be_submitted == 0 && cluster.all_ended(); }

    Cluster cluster;
    Family family;
};

struct Ends {
    size_t all_ok = 0, none_ok = 0, some_ok = 0;

    void look(Trial& trial, const Hit& hit) {
        size_t ok = 0;
        for (const Call* call : trial.family.calls) {
            CAPTURE(call->outcome.error.text);
            REQUIRE(call->ended);
            ok += call->ok();
            const bool mine = call == trial.family.calls[hit.rank];
            if (!call->ok()) REQUIRE(call->outcome.child == nullptr);
            if (call->ok() || hit.blow == Blow::both) continue;
            const Errc own = hit.blow == Blow::cancel ? Errc::cancelled : Errc::timed_out;
            REQUIRE(call->outcome.error.code == (mine ? own : Errc::aborted));
            if (hit.blow == Blow::cancel) REQUIRE(call->outcome.error.rank == hit.rank);
        }
        all_ok += ok == ranks, none_ok += ok == 0, some_ok += ok > 0 && ok < ranks;
    }
    // A barrier of all members that have the child: whole children work, others end and do not hang.
    void try_children(Trial& trial) {
        std::map<GroupId, std::vector<Call*>> barriers;
        std::map<GroupId, uint32_t> sizes;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
            if (!trial.family.calls[rank]->ok()) continue;
            const engine::GroupInfo& info = *trial.family.info(rank);
            sizes[info.id] = info.size;
            SimGroup child{info.id, std::vector(info.size, trial.family.parent.placement[rank]),
                           std::vector(info.size, trial.family.parent.sessions[rank])};
            barriers[info.id].push_back(
                &trial.cluster.submit(child, info.rank.value, request_of({OpKind::barrier}), {}, 0));
        }
        expect_end(trial.cluster);
        for (const auto& [id, calls] : barriers)
            for (const Call* call : calls) {
                CAPTURE(call->outcome.error.text);
                REQUIRE(call->ok() == (calls.size() == sizes[id]));
                if (!call->ok()) REQUIRE(call->outcome.error.code == Errc::peer_lost);
            }
    }
};

void one_trial(uint64_t seed, OpKind kind, const std::vector<uint32_t>& placement, const Hit& hit,
               const std::vector<Time>& began, Ends& ends) {
    for (uint32_t rank = 0; rank < ranks; ++rank)
        if (Trial::is_late(hit, rank) && hit.at <= began[rank]) return;
    if (hit.blow != Blow::deadline && hit.at <= began[hit.rank]) return;
    Trial trial(seed, kind, placement, &hit, &began);
    run_to_event(trial.cluster, hit.event + 1);
    if (hit.blow != Blow::deadline)
        trial.cluster.cancel(trial.family.parent, hit.rank, *trial.family.calls[hit.rank]);
    expect_end(trial.cluster);
    ends.look(trial, hit);
    ends.try_children(trial);
    REQUIRE(run_everything(trial.cluster, trial.family.parent) == "");
    trial.cluster.check();
}

}  // namespace

TEST_CASE(
    "[Y1][Y3] matrix: a split or dup cancelled or late at any event, on any rank: whole children or none") {
    for (const OpKind kind : {OpKind::group_split, OpKind::group_dup}) {
        Ends ends;
        for (const auto& placement : placements)
            for (const uint64_t round : seeds(3)) {
                const Rounds rounds(ranks);
                const uint64_t seed = rounds.schedule(round);
                Trial calm(seed, kind, placement, nullptr, nullptr);
                const std::vector<Time> events = events_of(calm.cluster, [&] { return calm.is_over(); });
                std::vector<Time> began;
                for (const Call* call : calm.family.calls) began.push_back(call->submitted);
                for (const uint64_t event : rounds.events(round, events.size())) {
                    const Hit hit = rounds.hit(round, event, events[event]);
                    CAPTURE(int(kind), placement, round, event, int(hit.blow), hit.rank);
                    one_trial(seed, kind, placement, hit, began, ends);
                }
            }
        REQUIRE(met(ends.all_ok));
        REQUIRE(met(ends.none_ok));
        CAPTURE(ends.some_ok);
    }
}

}  // namespace nexar::sim
