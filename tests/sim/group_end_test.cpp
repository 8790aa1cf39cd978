// Where a group ends when a process or nodes of it fail (docs/protocol/group_lifecycle.md): what every rank
// had handed over ends well, everything else alike on all survivors, also when failures overlap.
#include <catch2/catch_test_macros.hpp>

#include "post.hpp"
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

TEST_CASE(
    "[G3] what every rank had handed over ends well, also where words of the dead rank's node are late") {
    for (const uint64_t seed : seeds(10)) {
        CAPTURE(seed);
        Crash c(seed, true);
        c.cluster.run_for(50ms);
        REQUIRE_FALSE(c.group_at(1).ranks[2].gone);
        REQUIRE_FALSE(c.call(0, 1).ended);
        REQUIRE_FALSE(c.call(1, 1).ended);

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

TEST_CASE("[G6] a collective that was handed over and does not end is given up after the limit for it") {
    Crash c(3, true);
    c.cluster.run_for(4s);
    REQUIRE_FALSE(c.call(0, 1).ended);
    REQUIRE_FALSE(c.call(1, 0).ended);

    c.cluster.run_for(2s);

    REQUIRE((c.lost(0, 1) && c.lost(1, 1) && c.lost(0, 0) && c.lost(1, 0)));
    c.cluster.block(2, 1, false);
    REQUIRE(c.cluster.run(20s));
    c.cluster.check();
}

TEST_CASE(
    "[G4] [F16] a collective that a rank had not handed over when its node froze ends with the failure") {
    Crash c(5, false);
    c.cluster.run_for(100ms);
    REQUIRE((c.lost(0, 0) && c.lost(1, 0)));

    c.program.post(0, 1);  // called when the group has ended: at once

    REQUIRE(c.lost(0, 1));
    REQUIRE(c.cluster.run(10s));
    c.cluster.check();
}

TEST_CASE("[G8] a matched message between survivors completes, and what is not matched ends with the group") {
    size_t while_moving = 0;
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        Cluster cluster(seed, shape_of(3));
        Post post(cluster, cluster.make_group({0, 1, 2}));
        const uint64_t count = 500'000;
        Call& received = post.recv(1, 0, 7, count);
        Call& sent = post.send(0, 1, 7, seed, count);
        Call& unmatched = post.send(0, 1, 8, seed, 10);
        Call& to_lost = post.send(1, 2, 7, seed, count);
        Call& from_nobody = post.recv(0, 1, 9, 10);
        Call& from_lost = post.recv(1, engine::any_rank, 11, 10);
        cluster.run_for(20us + cluster.clock.some(300us));
        while_moving += received.ended ? 0 : 1;

        cluster.end_session(post.group, 2);
        expect_end(cluster);

        expect_message(received, seed, count, 0, 7);
        REQUIRE(sent.ok());
        for (const Call* call : {&unmatched, &to_lost, &from_nobody, &from_lost}) {
            REQUIRE(call->ended);
            REQUIRE(call->outcome.error.code == Errc::peer_lost);
            REQUIRE(call->outcome.error.rank == 2);
        }
    }
    REQUIRE(met(while_moving));
}

TEST_CASE("[G8] a message that goes on after its group has ended ends with its peer's goodbye") {
    size_t while_moving = 0, cut_off = 0;
    for (const uint64_t seed : seeds(30)) {
        CAPTURE(seed);
        ClusterShape shape = shape_of(3);
        shape.collective_timeout = Duration{0};  // no deadline
        Cluster cluster(seed, shape);
        Post post(cluster, cluster.make_group({0, 1, 2}));
        const uint64_t count = 2'000'000;
        Call& received = post.recv(1, 0, 7, count);
        Call& sent = post.send(1, 0, 8, seed, count);
        post.recv(0, 1, 8, count);
        post.send(0, 1, 7, seed, count);
        cluster.run_for(20us + cluster.clock.some(200us));
        cluster.end_session(post.group, 2);
        while (!cluster.hosts[1]->engine->snapshot(cluster.clock.now()).groups.at(0).failed.text.size())
            cluster.run_for(10us);
        if (received.ended || sent.ended) continue;
        ++while_moving;

        cluster.kill(0, false);
        for (auto& mesh : cluster.hosts[1]->meshes) mesh->drop_peer(link::PeerIndex(0));
        cluster.hosts[1]->engine->on_peer_down(cluster.clock.now(), link::PeerIndex(0), "goodbye", true);
        cluster.hosts[1]->after_input();
        expect_end(cluster);

        for (const Call* call : {&received, &sent}) {
            REQUIRE(call->ended);
            if (call->ok()) continue;  // all of it was on its way
            ++cut_off;
            REQUIRE(call->outcome.error.code == Errc::peer_lost);
            REQUIRE(call->outcome.error.rank == 2);
        }
    }
    REQUIRE((while_moving > 0 && cut_off > 0));
}

TEST_CASE(
    "[G8] a message that goes on after its group has ended ends on both sides, also if only one suspects") {
    for (const uint64_t seed : seeds(30)) {
        CAPTURE(seed);
        ClusterShape shape = shape_of(3);
        shape.collective_timeout = Duration{0};  // no deadline
        Cluster cluster(seed, shape);
        Post post(cluster, cluster.make_group({0, 1, 2}));
        const uint64_t count = 2'000'000;
        Call* calls[] = {&post.recv(1, 0, 7, count), &post.send(1, 0, 8, seed, count),
                         &post.recv(0, 1, 8, count), &post.send(0, 1, 7, seed, count)};
        cluster.run_for(20us + cluster.clock.some(200us));
        cluster.end_session(post.group, 2);
        cluster.run_for(200us + cluster.clock.some(200us));
        cluster.block(0, 1, true);  // node 1 receives nothing from node 0 for longer than the silence limit
        cluster.run_for(7s);
        cluster.block(0, 1, false);
        expect_end(cluster);

        for (const Call* call : calls) {
            REQUIRE(call->ended);
            if (!call->ok()) REQUIRE(call->outcome.error.code == Errc::peer_lost);
        }
    }
}

TEST_CASE("[G4] a node that is frozen begins nothing that it had not handed over") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        Cluster cluster(seed, Crash::shape());
        Program program(cluster, cluster.make_group({0, 1, 2}));
        for (int i = 0; i < 2; ++i) program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 900, 0});
        for (const uint32_t rank : {0u, 1u, 2u}) program.post(0, rank);
        cluster.run_for(20ms);
        REQUIRE(program.steps[0].calls[1]->ok());
        program.post(1, 2);  // only the rank that fails has called it when the group freezes
        program.stop_rank(2);
        cluster.block(0, 1, true);  // node 0 coordinates: its FREEZE and its cut are held up
        cluster.end_session(program.group, 2);
        cluster.run_for(20ms);
        const auto group = cluster.hosts[1]->engine->snapshot(cluster.clock.now()).groups.at(0);
        REQUIRE((group.frozen && group.failed.code == Errc::ok));

        program.post(1, 0);
        program.post(1, 1);
        cluster.run_for(20ms);
        for (const auto& op : cluster.hosts[1]->engine->snapshot(cluster.clock.now()).ops)
            REQUIRE(!op.phase.starts_with("running"));
        cluster.block(0, 1, false);
        REQUIRE(cluster.run(10s));
        cluster.check();
        for (const uint32_t rank : {0u, 1u})
            REQUIRE(program.steps[1].calls[rank]->outcome.error.code == Errc::peer_lost);
    }
}

}  // namespace nexar::sim
