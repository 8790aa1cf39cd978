// A group's verdict and a process's last word travel separately: what a rank handed over before it died may
// end well, whichever comes first, but nobody waits for it for ever.
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

// Ranks 0, 1, 2 on nodes 0, 1, 2. All hand over collective 0, ranks 0 and 1 also collective 1; then rank 2
// crashes. What node 2 says to node 1, data and words, is held up meanwhile.
struct Crash {
    Cluster cluster;
    Program program;

    static ClusterShape shape() {
        ClusterShape shape;
        shape.nodes = 3;
        shape.plan = {1, 256, 64, 128, 4096, 2};
        return shape;
    }
    Crash(uint64_t seed, bool all_hand_over)
        : cluster(seed, shape()), program(cluster, cluster.make_group({0, 1, 2})) {
        for (int i = 0; i < 2; ++i) program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 900, 0});
        if (all_hand_over) cluster.block(2, 1, true);
        for (const uint32_t rank : {0u, 1u, 2u})
            if (all_hand_over || rank != 1) program.post(0, rank);
        program.post(1, 0);
        if (all_hand_over) program.post(1, 1);
        program.stop_rank(2);
        cluster.end_session(program.group, 2);
    }
    const Call& call(size_t step, uint32_t rank) const { return *program.steps[step].calls[rank]; }
    bool lost(size_t step, uint32_t rank) const {
        const Call& c = call(step, rank);
        return c.ended && c.outcome.error.code == Errc::peer_lost && c.outcome.error.rank == 2;
    }
    engine::GroupSnapshot group_at(uint32_t node) {
        return cluster.hosts[node]->engine->snapshot(cluster.clock.now()).groups.at(0);
    }
};

}  // namespace

TEST_CASE("a verdict before the RankGone that caused it ends nothing that the dead rank had handed over",
          "[F16]") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        Crash c(seed, true);
        c.cluster.run_for(50ms);
        // Node 1 has the verdict, by way of another node, and not the word of the rank's own.
        REQUIRE(c.group_at(1).failed.code == Errc::peer_lost);
        REQUIRE_FALSE(c.group_at(1).ranks[2].gone);
        REQUIRE_FALSE(c.call(0, 1).ended);

        c.cluster.block(2, 1, false);
        REQUIRE(c.cluster.run(10s));

        c.cluster.check();
        for (const uint32_t rank : {0u, 1u}) {
            REQUIRE(c.call(0, rank).ok());
            REQUIRE(c.program.wrong_result(c.program.steps[0], rank) == "");
            REQUIRE(c.lost(1, rank));
        }
    }
}

TEST_CASE("a verdict whose RankGone does not come ends everything after the grace for it") {
    Crash c(3, true);
    c.cluster.run_for(150ms);
    REQUIRE_FALSE(c.call(0, 1).ended);

    c.cluster.run_for(150ms);

    REQUIRE((c.lost(0, 1) && c.lost(1, 1)));
    c.cluster.block(2, 1, false);
    REQUIRE(c.cluster.run(20s));
    c.cluster.check();
    REQUIRE((c.lost(0, 0) && c.lost(1, 0)));
}

TEST_CASE(
    "a collective that the dead rank had handed over ends well if the others come, or when its grace is "
    "over") {
    for (const bool comes : {true, false}) {
        CAPTURE(comes);
        Crash c(5, false);
        c.cluster.run_for(4s);
        REQUIRE(c.lost(1, 0));
        REQUIRE_FALSE(c.call(0, 0).ended);

        if (comes) c.program.post(0, 1);
        c.cluster.run_for(2s);

        c.cluster.check();
        if (comes) {
            REQUIRE((c.call(0, 0).ok() && c.call(0, 1).ok()));
            REQUIRE(c.program.wrong_result(c.program.steps[0], 0) == "");
        } else {
            REQUIRE(c.lost(0, 0));
            REQUIRE(c.call(0, 0).finished - c.call(0, 0).submitted >= 5s);
            // Rank 1, which comes now, hears it at once.
            c.program.post(0, 1);
            REQUIRE(c.lost(0, 1));
        }
    }
}

}  // namespace nexar::sim
