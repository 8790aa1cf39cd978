// Failures while a group is created from a list: no part of a group, and no call without an end
// (docs/protocol/children.md [Y12]).
#include <catch2/catch_test_macros.hpp>

#include "creation.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

ClusterShape patient_shape() {
    ClusterShape shape = shape_of(4);
    shape.collective_timeout = 12s;
    shape.barrier_timeout = 60s;
    return shape;
}

// One create, and one thing that goes wrong while it runs.
struct Accident {
    explicit Accident(uint64_t seed)
        : random(seed * 7919),
          cluster(seed, patient_shape()),
          parent(cluster.make_group(placement())),
          creation(cluster, parent, list()) {}

    std::vector<uint32_t> placement() {
        std::vector<uint32_t> out{0, 1, 2, 3};
        for (uint64_t more = random.below(5); more > 0; --more)
            out.push_back(static_cast<uint32_t>(random.below(4)));
        return out;
    }
    Creation::Ranks list() {
        Creation::Ranks out;
        for (uint32_t rank = 0; rank < parent.size(); ++rank)
            if (random.below(4) != 0) out.push_back(rank);
        return out.empty() ? Creation::Ranks{0} : out;
    }
    bool runs(uint32_t rank) const {
        return !(dead && rank == victim) && !cluster.hosts[parent.placement[rank]]->dead;
    }
    void begin() {
        for (const uint32_t rank : creation.ranks)
            cluster.clock.after(cluster.clock.some(200us), [this, rank] {
                if (runs(rank)) static_cast<void>(creation.start(rank));
            });
        const Duration when{static_cast<int64_t>(random.below(1'200'000))};
        victim = creation.ranks[random.below(creation.ranks.size())];
        const uint64_t what = random.below(4);
        cluster.clock.after(when, [this, what] { happen(what); });
    }
    void happen(uint64_t what) {
        const uint32_t host = parent.placement[victim];
        switch (what) {
            case 0:  // its process crashes
                dead = true;
                return cluster.end_session(parent, victim);
            case 1:  // its daemon dies
                return cluster.kill(host, true);
            case 2:  // it cancels its call
                if (creation.calls.contains(victim)) cancel(cluster, creation.calls[victim]);
                return;
            default:  // a channel breaks, and comes back
                return cluster.break_channel(host, (host + 1) % 4, 1ms);
        }
    }
    // Every rank that called and runs has an end.
    void look() {
        std::set<GroupId> ids;
        for (const uint32_t rank : creation.ranks) {
            if (!runs(rank) || !creation.calls.contains(rank)) continue;
            CAPTURE(rank);
            const bool refused = !creation.calls[rank].accepted;
            REQUIRE((refused || creation.answer(rank) != nullptr));
            if (creation.ok(rank)) {
                ++ok;
                ids.insert((*creation.answer(rank))->id);
            } else {
                ++failed;
                REQUIRE((refused ? creation.calls[rank].accepted.error() : creation.error(rank)).code !=
                        Errc::timed_out);
            }
        }
        REQUIRE(ids.size() <= 1);
    }
    // Who has the group can use it, or gets the error of a lost member; never does it hang.
    void use() {
        std::vector<Call*> barriers;
        const SimGroup made = creation.made();
        for (uint32_t at = 0; at < creation.ranks.size(); ++at)
            if (runs(creation.ranks[at]) && creation.ok(creation.ranks[at]))
                barriers.push_back(&cluster.submit(made, at, request_of({OpKind::barrier}), {}, 0));
        const bool finished = cluster.run(20s);
        INFO(cluster.unfinished());
        INFO(cluster.state());
        REQUIRE(finished);
        for (const Call* call : barriers) {
            CAPTURE(call->outcome.error.text, ok, creation.ranks.size());
            if (ok == creation.ranks.size()) REQUIRE(call->ok());
            if (!call->ok()) REQUIRE(call->outcome.error.code == Errc::peer_lost);
        }
    }

    Random random;
    Cluster cluster;
    SimGroup parent;
    Creation creation;
    uint32_t victim = 0;
    bool dead = false;
    size_t ok = 0, failed = 0;
};

}  // namespace

TEST_CASE("[Y12] whatever fails while a group is created, no group is there for some of its members only") {
    size_t all_ok = 0, none_ok = 0;
    for (const uint64_t seed : seeds(400)) {
        CAPTURE(seed);
        Accident accident(seed);
        accident.begin();
        accident.cluster.run_for(30s);
        accident.look();
        accident.use();
        accident.cluster.check();
        all_ok += accident.failed == 0;
        none_ok += accident.ok == 0;
    }
    REQUIRE(met(all_ok));
    REQUIRE(met(none_ok));
}

}  // namespace nexar::sim
