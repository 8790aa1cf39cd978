// What happens when something dies, is cut off, is cancelled, is late or does not match: every survivor ends,
// with the right value or with the same error as every other survivor; the next op is unaffected where it may
// be.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

OpDescriptor all_reduce(uint64_t count) {
    return {OpKind::all_reduce, Dtype::i32, ReduceOp::sum, count, 0};
}

ClusterShape three_nodes() {
    ClusterShape shape;
    shape.nodes = 3;
    shape.plan = {1, 256, 64, 128, 4096, 2};
    return shape;
}

// Right value or error on every surviving rank; all errors the same, and of these codes.
struct Survey {
    size_t right = 0, failed = 0;
    std::set<std::string> errors;
    std::set<Errc> codes;
};
Survey survey(const Program& program) {
    Survey out;
    for (const Step& step : program.steps)
        for (uint32_t rank = 0; rank < program.group.size(); ++rank) {
            if (program.stopped.contains(rank)) continue;
            const Call* call = step.calls[rank];
            if (call == nullptr) continue;
            if (program.cluster().hosts[program.group.placement[rank]]->dead) continue;
            CAPTURE(rank, step.words.text());
            REQUIRE(call->ended);
            if (call->ok()) {
                REQUIRE(program.wrong_result(step, rank) == "");
                ++out.right;
                continue;
            }
            ++out.failed;
            out.errors.insert(call->outcome.error.text);
            out.codes.insert(call->outcome.error.code);
        }
    return out;
}

void expect_end(Cluster& cluster) {
    const bool finished = cluster.run();
    INFO(cluster.unfinished());
    REQUIRE(finished);
    cluster.check();
}

}  // namespace

TEST_CASE("a process that crashes in the middle: every survivor gets the same error naming it") {
    for (const uint64_t seed : seeds(150)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Program program(cluster, cluster.make_group({0, 1, 2, 1, 0, 2}));
        for (int i = 0; i < 30; ++i) program.add(all_reduce(700));
        program.start(10us, 2);
        const uint32_t victim = static_cast<uint32_t>(seed % 6);
        cluster.clock.after(cluster.clock.some(2ms), [&] {
            program.stop_rank(victim);
            cluster.end_session(program.group, victim);
        });

        expect_end(cluster);

        const Survey seen = survey(program);
        REQUIRE(seen.errors.size() <= 1);
        if (seen.failed > 0) {
            REQUIRE(seen.codes == std::set<Errc>{Errc::peer_lost});
            REQUIRE(seen.errors.begin()->contains("rank " + std::to_string(victim)));
        }
    }
}

TEST_CASE("two processes that crash at about the same time: still one error for all") {
    for (const uint64_t seed : seeds(100)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Program program(cluster, cluster.make_group({0, 1, 2, 1, 0, 2}));
        for (int i = 0; i < 30; ++i) program.add(all_reduce(300));
        program.start(10us, 2);
        for (uint32_t victim : {0u, 5u})
            cluster.clock.after(500us + cluster.clock.some(100us), [&, victim] {
                program.stop_rank(victim);
                cluster.end_session(program.group, victim);
            });

        expect_end(cluster);

        REQUIRE(survey(program).errors.size() <= 1);
    }
}

TEST_CASE("a process that exits after its last op fails nobody") {
    for (const uint64_t seed : seeds(100)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Program program(cluster, cluster.make_group({0, 1, 2, 1}));
        for (int i = 0; i < 5; ++i) program.add(all_reduce(5000));
        program.start(20us, 8);
        // As soon as each rank has posted its last op, it is gone: its daemon finishes what it handed over.
        const auto step = static_cast<uint32_t>(1 + seed % 3);
        for (uint32_t rank = 0; rank < 4; rank += step)
            cluster.clock.after(300us, [&, rank] {
                REQUIRE(program.steps.back().calls[rank] != nullptr);
                program.stop_rank(rank);
                cluster.end_session(program.group, rank, false);
            });

        expect_end(cluster);

        REQUIRE(survey(program).failed == 0);
    }
}

TEST_CASE("a daemon that dies: every survivor ends with the same error within the timeout") {
    for (const uint64_t seed : seeds(120)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Program program(cluster, cluster.make_group({0, 1, 2, 1, 0, 2}));
        for (int i = 0; i < 30; ++i) program.add(all_reduce(700));
        program.start(10us, 2);
        const uint32_t victim = static_cast<uint32_t>(seed % 3);
        const bool seen_at_once = seed % 4 != 0;  // otherwise it is just silent
        const Time began = cluster.clock.now();
        cluster.clock.after(cluster.clock.some(2ms), [&] { cluster.kill(victim, seen_at_once); });

        expect_end(cluster);

        const Survey seen = survey(program);
        REQUIRE(seen.errors.size() <= 1);
        if (seen.failed > 0) REQUIRE(seen.codes == std::set<Errc>{Errc::peer_lost});
        REQUIRE(cluster.clock.now() - began < (seen_at_once ? 3s : 10s));
    }
}

TEST_CASE("a cut between two nodes that both reach the third ends in one error naming the link") {
    for (const bool one_way : {false, true})
        for (const uint64_t seed : seeds(20)) {
            CAPTURE(seed, one_way);
            Cluster cluster(seed, three_nodes());
            Program program(cluster, cluster.make_group({0, 1, 2}));
            for (int i = 0; i < 200; ++i) program.add(all_reduce(500));
            program.start(10us, 2);
            cluster.clock.after(cluster.clock.some(1ms), [&] {
                cluster.block(0, 1, true);
                if (!one_way) cluster.block(1, 0, true);
            });

            expect_end(cluster);

            const Survey seen = survey(program);
            REQUIRE(seen.failed > 0);
            REQUIRE(seen.errors.size() == 1);
            REQUIRE(seen.codes == std::set<Errc>{Errc::link_lost});
        }
}

TEST_CASE("a node cut off from all others: both sides end") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Program program(cluster, cluster.make_group({0, 1, 2}));
        for (int i = 0; i < 200; ++i) program.add(all_reduce(500));
        program.start(10us, 2);
        cluster.clock.after(cluster.clock.some(1ms), [&] {
            for (uint32_t other : {0u, 1u}) cluster.block(2, other, true), cluster.block(other, 2, true);
        });

        expect_end(cluster);

        REQUIRE(survey(program).failed > 0);
    }
}

TEST_CASE("a group that has failed fails later calls at once with the same error; other groups go on") {
    Cluster cluster(5, three_nodes());
    Program program(cluster, cluster.make_group({0, 1, 2}));
    Program other(cluster, cluster.make_group({0, 1, 2}));
    for (int i = 0; i < 3; ++i) program.add(all_reduce(50)), other.add(all_reduce(50));
    program.post(0, 0);
    program.post(0, 1);
    cluster.end_session(program.group, 2);
    program.stop_rank(2);
    expect_end(cluster);

    const Call& later = program.post(1, 0);

    REQUIRE(later.ended);
    REQUIRE(later.outcome.error.code == Errc::peer_lost);
    REQUIRE(later.outcome.error.text == program.steps[0].calls[1]->outcome.error.text);
    REQUIRE(later.outcome.error.rank == 2);
    other.start(10us);
    expect_end(cluster);
    REQUIRE(other.wrong() == "");
}

TEST_CASE("a cancelled collective ends on all ranks, naming who; the next one is unaffected") {
    for (const uint64_t seed : seeds(100)) {
        CAPTURE(seed);
        Cluster cluster(seed, three_nodes());
        Program program(cluster, cluster.make_group({0, 1, 2, 0}));
        for (int i = 0; i < 2; ++i) program.add(all_reduce(4000));
        const bool all_there = seed % 2 == 1;  // otherwise rank 3 comes after the cancellation
        for (size_t i = 0; i < 2; ++i)
            for (uint32_t rank = 0; rank < (all_there ? 4 : 3); ++rank) program.post(i, rank);

        cluster.run_for(cluster.clock.some(400us));
        cluster.cancel(program.group, 1, *program.steps[0].calls[1]);
        cluster.run_for(cluster.clock.some(100us));
        if (!all_there) program.post(0, 3), program.post(1, 3);
        expect_end(cluster);

        for (uint32_t rank = 0; rank < 4; ++rank) {
            const Call& call = *program.steps[0].calls[rank];
            if (call.ok()) {
                REQUIRE(all_there);
                REQUIRE(program.wrong_result(program.steps[0], rank) == "");
                continue;
            }
            REQUIRE(call.outcome.error.code == (rank == 1 ? Errc::cancelled : Errc::aborted));
            REQUIRE(call.outcome.error.text.contains("rank 1"));
        }
        REQUIRE(program.wrong(program.steps[1]) == "");
    }
}

TEST_CASE("the deadline names the ranks that have not arrived, with node and pid; it ends on all ranks") {
    ClusterShape shape = three_nodes();
    shape.collective_timeout = 3s;
    Cluster cluster(11, shape);
    Program program(cluster, cluster.make_group({0, 1, 2, 1}));
    program.add(all_reduce(100));
    program.add(all_reduce(100));
    for (uint32_t rank : {0u, 1u, 2u}) program.post(0, rank);  // rank 3, on node 1, is late

    cluster.run_for(5s);

    for (uint32_t rank : {0u, 1u, 2u}) {
        const Call& call = *program.steps[0].calls[rank];
        REQUIRE(call.ended);
        REQUIRE(call.outcome.error.text.contains("rank 3 (node " + cluster.hosts[1]->id.short_hex() +
                                                 ", pid 1003)"));
        REQUIRE(call.outcome.error.rank == 3);
        REQUIRE((call.outcome.error.code == Errc::timed_out || call.outcome.error.code == Errc::aborted));
        REQUIRE(call.finished < Time{} + 4s);
    }
    // A named event after one second.
    REQUIRE(std::ranges::any_of(cluster.warnings, [](const std::string& w) {
        return w.contains("collective_late") && w.contains("rank 3");
    }));
    // The late rank learns it at once, and the next collective works.
    const Call& late = program.post(0, 3);
    REQUIRE(late.ended);
    REQUIRE(late.outcome.error.code == Errc::aborted);
    for (uint32_t rank = 0; rank < 4; ++rank) program.post(1, rank);
    expect_end(cluster);
    REQUIRE(program.wrong(program.steps[1]) == "");
}

TEST_CASE(
    "each field of the descriptor that differs is a mismatch on all ranks, named; the next op is "
    "unaffected") {
    const OpDescriptor right{OpKind::reduce, Dtype::i32, ReduceOp::sum, 64, 1};
    std::vector<OpDescriptor> others(5, right);
    others[0].kind = OpKind::all_reduce;
    others[1].dtype = Dtype::u32;
    others[2].op = ReduceOp::max;
    others[3].count = 63;
    others[4].root = 2;
    for (size_t field = 0; field < others.size(); ++field)
        for (uint32_t odd = 0; odd < 4; ++odd)
            for (const uint64_t seed : seeds(3)) {
                CAPTURE(field, odd, seed);
                Cluster cluster(seed, three_nodes());
                Program program(cluster, cluster.make_group({0, 1, 2, 1}));
                program.add(right);
                program.add(all_reduce(300));
                Program strange(cluster, program.group_copy());
                strange.add(others[field]);
                for (uint32_t rank = 0; rank < 4; ++rank) {
                    if (rank == odd)
                        strange.post(0, rank);
                    else
                        program.post(0, rank);
                    cluster.run_for(cluster.clock.some(20us));
                    program.post(1, rank);
                }

                expect_end(cluster);

                for (uint32_t rank = 0; rank < 4; ++rank) {
                    const Call& call = *(rank == odd ? strange : program).steps[0].calls[rank];
                    CAPTURE(rank, call.outcome.error.text);
                    REQUIRE(call.ended);
                    // A rank that only sends may be done before the odd one is known; a rank that gets a
                    // result is not.
                    if (call.ok()) {
                        REQUIRE((rank != right.root && rank != odd));
                        continue;
                    }
                    REQUIRE(call.outcome.error.code == Errc::mismatch);
                    REQUIRE(call.outcome.error.text.contains("rank " + std::to_string(odd) + " "));
                    REQUIRE(call.outcome.error.text.contains(others[field].text()));
                }
                REQUIRE(program.wrong(program.steps[1]) == "");
            }
}

TEST_CASE("bad calls are refused, consume no number and leave the group working") {
    Cluster cluster(1, three_nodes());
    Program program(cluster, cluster.make_group({0, 1}));
    const auto refused = [&](OpDescriptor d, size_t in, size_t out) {
        const Call& call = cluster.submit(program.group, 0, request_of(d), std::vector<std::byte>(in), out);
        REQUIRE_FALSE(call.accepted);
        REQUIRE(call.outcome.error.code == Errc::invalid_argument);
        return call.outcome.error.text;
    };

    REQUIRE(
        refused({OpKind::reduce, Dtype::f32, ReduceOp::sum, 4, 2}, 16, 16).contains("root must be below"));
    REQUIRE(
        refused({OpKind::all_reduce, Dtype::f32, ReduceOp::sum, 4, 0}, 15, 16).contains("16 bytes of input"));
    REQUIRE(
        refused({OpKind::all_reduce, Dtype::f32, ReduceOp::sum, 4, 0}, 16, 8).contains("16 bytes of output"));
    REQUIRE(refused({OpKind::all_gather, Dtype::f32, ReduceOp::sum, 4, 0}, 16, 16)
                .contains("32 bytes of output"));
    REQUIRE(refused({OpKind::all_reduce, Dtype::f64, ReduceOp::sum, uint64_t{1} << 61, 0}, 16, 16)
                .contains("too large"));
    engine::OpRequest foreign = request_of(all_reduce(1));
    const SimGroup nowhere{GroupId{9, 9, 9}, program.group.placement, program.group.sessions};
    REQUIRE(cluster.submit(nowhere, 0, foreign, std::vector<std::byte>(4), 4).outcome.error.code ==
            Errc::not_found);

    program.add(all_reduce(10));
    program.start(10us);
    expect_end(cluster);
    REQUIRE(program.wrong() == "");
}

TEST_CASE("a group that all its ranks have freed is forgotten") {
    Cluster cluster(1, three_nodes());
    Program program(cluster, cluster.make_group({0, 1, 0}));
    program.add(all_reduce(1000));
    program.start(10us);
    expect_end(cluster);

    for (uint32_t rank = 0; rank < 3; ++rank) {
        auto& engine = *cluster.hosts[program.group.placement[rank]]->engine;
        REQUIRE(engine.free_group(cluster.clock.now(), program.group.sessions[rank], program.group.id, rank));
        REQUIRE_FALSE(
            engine.free_group(cluster.clock.now(), program.group.sessions[rank], program.group.id, rank));
    }

    for (const auto& host : cluster.hosts)
        REQUIRE(host->engine->snapshot(cluster.clock.now()).groups.empty());
}

TEST_CASE("a rank whose node has not answered is not called missing, and one that arrived later no longer") {
    ClusterShape shape = three_nodes();
    shape.collective_timeout = 60s;
    Cluster cluster(3, shape);
    Program program(cluster, cluster.make_group({0, 1, 1, 2}));
    program.add(all_reduce(100));
    program.post(0, 0);
    const auto seen = [&](uint32_t host) {
        const auto snapshot = cluster.hosts[host]->engine->snapshot(cluster.clock.now());
        REQUIRE(snapshot.ops.size() == 1);
        std::vector<uint32_t> missing;
        for (const auto& rank : snapshot.ops[0].missing) missing.push_back(rank.rank.value);
        return std::pair(missing, snapshot.ops[0].unanswered);
    };

    cluster.run_for(500ms);  // nobody has been asked yet
    REQUIRE(seen(0) ==
            std::pair(std::vector<uint32_t>{}, std::vector{cluster.hosts[1]->id, cluster.hosts[2]->id}));
    cluster.run_for(1s);
    REQUIRE(seen(0) == std::pair(std::vector<uint32_t>{1, 2, 3}, std::vector<NodeId>{}));

    program.post(0, 2);  // not its node's first rank: nothing else shows it
    cluster.run_for(1s);
    REQUIRE(seen(0) == std::pair(std::vector<uint32_t>{1, 3}, std::vector<NodeId>{}));
    REQUIRE(seen(1).first == std::vector<uint32_t>{1});
    cluster.run_for(20s);
    program.post(0, 1);
    cluster.run_for(9s);
    REQUIRE(seen(0) == std::pair(std::vector<uint32_t>{3}, std::vector<NodeId>{}));
    REQUIRE(seen(1) == std::pair(std::vector<uint32_t>{3}, std::vector<NodeId>{}));

    program.post(0, 3);
    expect_end(cluster);
    REQUIRE(program.wrong(program.steps[0]) == "");
    // It is still logged once.
    REQUIRE(std::ranges::count_if(cluster.warnings,
                                  [](const std::string& w) { return w.contains("collective_late"); }) == 2);
}

TEST_CASE("the snapshot says who has arrived and who is missing") {
    Cluster cluster(1, three_nodes());
    Program program(cluster, cluster.make_group({0, 1, 0}));
    program.add(all_reduce(100));
    program.post(0, 0);
    program.post(0, 1);

    cluster.run_for(10ms);

    const auto snapshot = cluster.hosts[0]->engine->snapshot(cluster.clock.now());
    REQUIRE(snapshot.groups.size() == 1);
    REQUIRE(snapshot.ops.size() == 1);
    REQUIRE(snapshot.ops[0].phase == "waiting for ranks");
    REQUIRE(snapshot.ops[0].descriptor == all_reduce(100));
    REQUIRE(snapshot.ops[0].arrived.size() == 2);
    REQUIRE(snapshot.ops[0].missing.size() == 1);
    REQUIRE(snapshot.ops[0].missing[0].rank == Rank(2));
    REQUIRE(snapshot.ops[0].missing[0].pid == 1002);
    program.post(0, 2);
    expect_end(cluster);
}

}  // namespace nexar::sim
