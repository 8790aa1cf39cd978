// Ways through the engine that the general tests take rarely or never: words that come late or not at all.
#include <catch2/catch_test_macros.hpp>

#include "app.hpp"
#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

constexpr OpDescriptor small_sum{OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 500, 0};

}  // namespace

TEST_CASE("a process that crashes while its node's channel is down: the other node learns it all the same") {
    for (const uint64_t seed : seeds(60)) {
        CAPTURE(seed);
        ClusterShape shape;
        Cluster cluster(seed, shape);
        Program program(cluster, cluster.make_group({0, 1}));
        program.add(small_sum);
        Call& call = program.post(0, 0);
        cluster.run_for(cluster.clock.some(100us));
        const Duration down = cluster.clock.some(20ms);
        cluster.clock.after(cluster.clock.some(100us), [&, down] { cluster.break_channel(0, 1, down); });
        cluster.clock.after(cluster.clock.some(200us), [&] { cluster.end_session(program.group, 1); });

        cluster.run_for(10s);

        INFO(cluster.state());
        REQUIRE(call.ended);
        REQUIRE(call.outcome.error.code == Errc::peer_lost);
        REQUIRE(call.outcome.error.rank == 1);
    }
}

TEST_CASE("a cancel while the channel is down is sent afterwards, after all messages of the meantime") {
    for (const bool before : {true, false}) {
        CAPTURE(before);
        ClusterShape shape;
        shape.collective_timeout = 0s;  // none: a rank that is not notified waits for ever
        Cluster cluster(1, shape);
        constexpr size_t many = 600;
        Program program(cluster, cluster.make_group({0, 1}));
        for (size_t i = 0; i < many; ++i) program.add(small_sum);
        cluster.break_channel(0, 1, 100ms);
        const auto cancel = [&] { cluster.cancel(program.group, 0, *program.steps[0].calls[0]); };
        program.post(0, 0);
        program.post(0, 1);
        if (before) cancel();
        for (size_t i = 1; i < many; ++i) program.post(i, 0);
        cluster.run_for(50ms);  // all of them are announced
        if (!before) cancel();
        for (size_t i = 1; i < many; ++i) program.post(i, 1);

        const bool finished = cluster.run(10s);

        REQUIRE(finished);
        cluster.check();
        REQUIRE(program.steps[0].calls[0]->outcome.error.code == Errc::cancelled);
        REQUIRE(program.steps[0].calls[1]->outcome.error.code == Errc::aborted);
        for (size_t i = 1; i < many; ++i) REQUIRE(program.wrong(program.steps[i]) == "");
    }
}

namespace {

// Rank 0 calls so many barriers and gives each up, while rank 1 is elsewhere.
void give_up_barriers(Cluster& cluster, Program& program, size_t how_many) {
    for (size_t i = 0; i < how_many; ++i) {
        program.add({OpKind::barrier, Dtype::f32, ReduceOp::sum, 0, 0});
        program.post(i, 0);
        cluster.cancel(program.group, 0, *program.steps[i].calls[0]);
        cluster.run_for(1ms);
        REQUIRE(program.steps[i].calls[0]->outcome.error.code == Errc::cancelled);
    }
    cluster.run_for(100ms);
}

ClusterShape small_window() {
    ClusterShape shape;
    shape.collective_timeout = 0s;  // none: a rank that is not notified waits for ever
    shape.engine.seq_window = 20;
    return shape;
}

}  // namespace

TEST_CASE("what was given up far ahead of another node's ranks ends there too, when they come to it") {
    Cluster cluster(1, small_window());
    Program program(cluster, cluster.make_group({0, 1}));
    constexpr size_t ahead = 100;
    give_up_barriers(cluster, program, ahead);
    for (size_t i = 0; i < ahead; ++i) program.post(i, 1);
    program.add(small_sum);
    for (const uint32_t rank : {0u, 1u}) program.post(ahead, rank);

    const bool finished = cluster.run(10s);

    INFO(cluster.unfinished());
    REQUIRE(finished);
    cluster.check();
    for (size_t i = 0; i < ahead; ++i) {
        REQUIRE(program.steps[i].calls[1]->outcome.error.code == Errc::aborted);
        REQUIRE(program.steps[i].calls[1]->outcome.error.rank == 0);
    }
    REQUIRE(program.wrong(program.steps[ahead]) == "");
}

TEST_CASE("a rank that is further behind than a node remembers ends the group, and is named") {
    Cluster cluster(1, small_window());
    Program program(cluster, cluster.make_group({0, 1}));
    const size_t remembered = 1 + 17 * small_window().engine.seq_window;
    give_up_barriers(cluster, program, remembered + 1);
    program.add(small_sum);
    for (const uint32_t rank : {0u, 1u}) {
        const Call& call = program.post(remembered + 1, rank);
        cluster.run_for(5s);
        INFO(cluster.unfinished());
        REQUIRE(call.ended);
        REQUIRE(call.outcome.error.code == Errc::peer_lost);
        REQUIRE(call.outcome.error.rank == 1);
    }
}

TEST_CASE(
    "a group that a node cannot take: the others' ranks learn it, though the channel breaks at that moment") {
    for (const uint64_t seed : seeds(100)) {
        CAPTURE(seed);
        ClusterShape shape;
        shape.engine.groups_max = 1;
        shape.engine.timeouts = {};
        Cluster cluster(seed, shape);
        cluster.make_group({1});
        const auto a = cluster.open(0, "g", 2, 0), b = cluster.open(1, "g", 2, 1);
        cluster.clock.after(cluster.clock.some(500us), [&] { cluster.break_channel(0, 1, 20ms); });
        cluster.run_for(8s);
        const auto* opened = cluster.answer(a);
        const auto* refused = cluster.answer(b);
        REQUIRE((opened != nullptr && refused != nullptr));
        REQUIRE(opened->has_value());
        REQUIRE(!refused->has_value());
        REQUIRE(refused->error().code == Errc::table_full);
        const SimGroup group{(*opened)->id, {0, 1}, {a.session, b.session}};
        const Call& call = cluster.submit(group, 0, request_of({OpKind::barrier}), {}, 0);
        cluster.run_for(5s);
        REQUIRE(call.ended);
        REQUIRE(call.outcome.error.code == Errc::peer_lost);
    }
}

TEST_CASE("an announcement that a broken channel lost is replayed: two nodes that never meet in a header") {
    ClusterShape shape;
    shape.collective_timeout = 0s;
    Cluster cluster(1, shape);
    const SimGroup group = cluster.make_group({0, 1});
    // Both only send: neither's header finds a receive that could disagree.
    Program program(cluster, group);
    program.add({OpKind::broadcast, Dtype::i32, ReduceOp::sum, 500, 0});
    program.add({OpKind::broadcast, Dtype::i32, ReduceOp::sum, 500, 1});
    cluster.break_channel(0, 1, 100ms);
    Call& a = program.post(0, 0);
    Call& b = program.post(1, 1);  // it is rank 1's first
    cluster.run_for(50ms);         // announced into the void

    const bool finished = cluster.run(10s);

    REQUIRE(finished);
    for (const Call* call : {&a, &b}) REQUIRE(call->outcome.error.code == Errc::mismatch);
}

TEST_CASE(
    "a rank that crashes, leaves or cancels as soon as its group is open: nodes that learn of the group "
    "later know") {
    for (const uint64_t seed : seeds(200)) {
        const uint64_t way = seed % 3;
        CAPTURE(seed, way);
        ClusterShape shape;
        shape.nodes = 4;
        shape.network.jitter = 2ms;
        Cluster cluster(seed, shape);
        std::vector<std::unique_ptr<App>> apps;
        std::vector<int32_t> ends{1, 1, 1, 0};  // 1: pending
        for (uint32_t rank = 0; rank < 4; ++rank) {
            apps.push_back(std::make_unique<App>(cluster, rank));
            App& app = *apps.back();
            app.open("g", 4, rank, [&, rank](const Done& opened) {
                REQUIRE(opened.status == 0);
                if (rank == 3 && way == 0) return app.kill();
                nexar_shm_descriptor words{};
                words.kind = rank == 3 && way == 1 ? NEXAR_CMD_GROUP_FREE : NEXAR_OP_BARRIER;
                words.group = opened.result.group;
                words.timeout_ns = 0;  // none
                const auto handle = app.start(words, [&ends, rank](const Done& d) { ends[rank] = d.status; });
                if (rank == 3 && way == 2) app.cancel(*handle);
            });
        }
        cluster.run_for(20s);

        INFO(cluster.state());
        CAPTURE(ends);
        const auto others = static_cast<int32_t>(way == 2 ? Errc::aborted : Errc::peer_lost);
        const auto own = way == 2 ? static_cast<int32_t>(Errc::cancelled) : 0;
        for (uint32_t rank = 0; rank < 3; ++rank)
            REQUIRE((ends[rank] == others || (way == 2 && ends[rank] == 0)));  // over before the cancel
        REQUIRE((ends[3] == own || (way == 2 && ends[3] == 0)));
        for (const auto& host : cluster.hosts) REQUIRE(host->engine->quiet());  // nothing is left in flight
    }
}

// Cannot happen while the table comes from one prepare; the hash in every header is what holds if it does.
// The two sides may then choose other algorithms, phases, classes and meshes, and never meet.
TEST_CASE("nodes whose plan tables differ get MISMATCH before a byte is combined, and name the tables") {
    const wire::PlanTableRecord table{1, 256, 64, 128, 4096, 2};
    std::vector<wire::PlanTableRecord> others(5, table);
    others[0].small_bytes_max = 4096;
    others[1].doubling_bytes_max = 4096;
    others[2].chunk_bytes = 64;
    others[3].segment_bytes = 8192;
    others[4].lanes = 1;
    for (size_t field = 0; field < others.size(); ++field)
        for (const OpKind kind : {OpKind::barrier, OpKind::all_reduce, OpKind::all_gather})
            for (const uint64_t count : {10u, 50u, 500u, 5000u}) {
                CAPTURE(field, int(kind), count);
                ClusterShape shape;
                shape.plan = table;
                Cluster cluster(field * 7 + count, shape);
                Program program(cluster, cluster.make_group({0, 1}, {{1, others[field]}}));
                program.add({kind, Dtype::i32, ReduceOp::sum, count, 0});
                for (uint32_t rank : {0u, 1u}) program.post(0, rank);
                const Time began = cluster.clock.now();

                const bool finished = cluster.run();

                INFO(cluster.unfinished());
                REQUIRE(finished);
                cluster.check();
                for (uint32_t rank : {0u, 1u}) {
                    const Call& call = *program.steps[0].calls[rank];
                    CAPTURE(rank, call.outcome.error.text);
                    REQUIRE(call.outcome.error.code == Errc::mismatch);
                    for (const auto& host : cluster.hosts)
                        REQUIRE(call.outcome.error.text.contains(host->id.short_hex()));
                    REQUIRE(call.finished - began < 3s);
                }
            }
}

}  // namespace nexar::sim
