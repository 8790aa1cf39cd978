// Groups made by the production rendezvous: they work at once, wherever their ranks are, and an open that
// cannot be ends with a reason.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <numeric>

#include "program.hpp"
#include "seeds.hpp"

namespace nexar::sim {
namespace {

// The group of these opens, for a Program; all must have been answered well.
SimGroup group_of(const Cluster& cluster, const std::vector<Cluster::Open>& opens) {
    SimGroup group;
    group.placement.resize(opens.size());
    group.sessions.resize(opens.size());
    for (const Cluster::Open& open : opens) {
        const auto* answer = cluster.answer(open);
        REQUIRE(answer != nullptr);
        REQUIRE(answer->has_value());
        group.id = (*answer)->id;
        REQUIRE((*answer)->size == opens.size());
        group.placement[(*answer)->rank.value] = open.host;
        group.sessions[(*answer)->rank.value] = open.session;
    }
    return group;
}

}  // namespace

TEST_CASE("ranks that open a group by name, given or automatic, get it, and it works at once") {
    for (const uint64_t seed : seeds(30)) {
        CAPTURE(seed);
        ClusterShape shape;
        shape.nodes = 3;
        Cluster cluster(seed, shape);
        const uint32_t size = static_cast<uint32_t>(2 + seed % 6);
        std::vector<Cluster::Open> opens;
        for (uint32_t i = 0; i < size; ++i) {
            opens.push_back(cluster.open((i * 2 + static_cast<uint32_t>(seed)) % 3, "job", size,
                                         seed % 2 ? -1 : int64_t{i}));
            REQUIRE(opens.back().accepted);
            cluster.run_for(cluster.clock.some(3ms));
        }
        // A rank posts as soon as it has its result, when others may not have theirs yet.
        std::vector<Call*> calls(size);
        for (int round = 0; round < 4000 && std::count(calls.begin(), calls.end(), nullptr) > 0; ++round) {
            cluster.run_for(20us);
            for (uint32_t i = 0; i < size; ++i) {
                const auto* answer = cluster.answer(opens[i]);
                if (answer == nullptr || calls[i] != nullptr) continue;
                REQUIRE(answer->has_value());
                SimGroup mine;
                mine.id = (*answer)->id;
                mine.placement.assign(size, opens[i].host);
                mine.sessions.assign(size, opens[i].session);
                const engine::OpRequest r =
                    request_of({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 300, 0});
                calls[i] = &cluster.submit(mine, (*answer)->rank.value, r,
                                           Reference::input(7, (*answer)->rank.value, 300, Dtype::i32), 1200);
            }
        }

        REQUIRE(cluster.run());
        cluster.check();
        for (uint32_t i = 0; i < size; ++i) {
            REQUIRE(calls[i] != nullptr);
            REQUIRE(calls[i]->ok());
            for (uint64_t at = 0; at < 300; ++at)
                REQUIRE(Reference::reduced(Reference::load(calls[i]->out_at_end.data() + 4 * at, Dtype::i32),
                                           7, size, at, Dtype::i32, ReduceOp::sum));
        }
        Program program(cluster, group_of(cluster, opens));
        program.add({OpKind::broadcast, Dtype::i32, ReduceOp::sum, 10'000, 1});
        program.start(10us);
        REQUIRE(cluster.run());
        REQUIRE(program.wrong() == "");
    }
}

TEST_CASE("a group that never fills ends at the deadline for all who wait, naming who is missing") {
    ClusterShape shape;
    shape.nodes = 2;
    Cluster cluster(1, shape);
    const auto a = cluster.open(0, "job", 3, 0, "s", 2s);
    const auto b = cluster.open(1, "job", 3, 2, "s", 2s);

    cluster.run_for(5s);

    for (const auto& open : {a, b}) {
        const auto* answer = cluster.answer(open);
        REQUIRE(answer != nullptr);
        REQUIRE_FALSE(answer->has_value());
        REQUIRE(answer->error().code == Errc::group_incomplete);
        REQUIRE(answer->error().text.contains("1"));
    }
}

TEST_CASE("the deadline of an open comes on a lone node too, where nothing else keeps time") {
    ClusterShape shape;
    shape.nodes = 1;
    Cluster cluster(1, shape);
    const auto open = cluster.open(0, "job", 2, 0, "s", 2s);

    cluster.run_for(5s);

    const auto* answer = cluster.answer(open);
    REQUIRE(answer != nullptr);
    REQUIRE(answer->error().code == Errc::group_incomplete);
}

TEST_CASE("clashing ranks and different sizes under one name are refused, the latter for all who wait",
          "[U2]") {
    ClusterShape shape;
    shape.nodes = 2;
    Cluster cluster(1, shape);
    const auto first = cluster.open(0, "job", 2, 0);
    cluster.run_for(10ms);
    const auto clash = cluster.open(1, "job", 2, 0);
    cluster.run_for(10ms);
    REQUIRE(cluster.answer(first) == nullptr);
    const auto size = cluster.open(1, "job", 3, 1);

    cluster.run_for(1s);

    for (const auto& open : {clash, size, first}) {
        const auto* answer = cluster.answer(open);
        REQUIRE(answer != nullptr);
        REQUIRE_FALSE(answer->has_value());
        const bool of_ranks = open.session == clash.session;
        REQUIRE(answer->error().code == (of_ranks ? Errc::rank_clash : Errc::options_differ));
        REQUIRE(answer->error().host == "host1");
        REQUIRE(answer->error().pid == 4001);
    }
}

TEST_CASE("the same name of another user, without a secret, is another group") {
    ClusterShape shape;
    shape.nodes = 2;
    Cluster cluster(1, shape);
    std::vector<Cluster::Open> ours, theirs, elsewhere;
    for (const int64_t rank : {0, 1}) {
        ours.push_back(cluster.open(0, "job", 2, rank, "", 30s, 1000));
        theirs.push_back(cluster.open(0, "job", 2, rank, "", 30s, 1001));
        elsewhere.push_back(cluster.open(1, "job", 2, rank, "", 30s, 1000));
    }
    cluster.run_for(100ms);
    std::set<GroupId> ids;
    for (const auto* opens : {&ours, &theirs, &elsewhere}) {
        Program program(cluster, group_of(cluster, *opens));
        REQUIRE(ids.insert(group_of(cluster, *opens).id).second);
        program.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 100, 0});
        program.start(10us);
        REQUIRE(cluster.run());
        REQUIRE(program.wrong() == "");
    }
    // A third of one of them waits alone, and the other user's do not meet it.
    const auto waits = cluster.open(0, "job", 2, 0, "", 30s, 1000);
    const auto other = cluster.open(0, "job", 2, 1, "", 2s, 1001);
    cluster.run_for(3s);
    REQUIRE(cluster.answer(waits) == nullptr);
    REQUIRE(cluster.answer(other)->error().code == Errc::group_incomplete);
    REQUIRE(cluster.answer(other)->error().rank == 0);
}

TEST_CASE("a name is opened again while sessions of the job before are still there") {
    for (const bool cross : {false, true}) {
        CAPTURE(cross);
        ClusterShape shape;
        shape.nodes = 2;
        Cluster cluster(1, shape);
        const uint32_t second = cross ? 1 : 0;
        const auto job = [&](Duration timeout = Duration{30s}) {
            return std::vector{cluster.open(0, "job", 2, 0, "s", timeout),
                               cluster.open(second, "job", 2, 1, "s", timeout)};
        };
        const auto before = job();
        cluster.run_for(100ms);
        const SimGroup lingers = group_of(cluster, before);
        // Its ranks are there and do nothing, while the job is started again, twice.
        for (int again = 0; again < 2; ++again) {
            const auto opens = job();
            cluster.run_for(100ms);
            const SimGroup group = group_of(cluster, opens);
            REQUIRE(group.id != lingers.id);
            Program on_new(cluster, group), on_old(cluster, lingers);
            on_new.add({OpKind::all_reduce, Dtype::i32, ReduceOp::sum, 100, 0});
            on_old.add({OpKind::all_reduce, Dtype::i32, ReduceOp::max, 100, 0});
            on_new.start(10us);
            on_old.start(10us);
            REQUIRE(cluster.run());
            REQUIRE(on_new.wrong() == "");
            REQUIRE(on_old.wrong() == "");
        }
        // A process of the job before still waits to open: who comes for its rank gets a clash, until it is
        // gone.
        const auto stale = cluster.open(0, "job", 2, 0);
        cluster.run_for(50ms);
        const auto refused = cluster.open(second, "job", 2, 0);
        cluster.run_for(50ms);
        REQUIRE(cluster.answer(stale) == nullptr);
        REQUIRE(cluster.answer(refused)->error().code == Errc::rank_clash);
        REQUIRE(cluster.answer(refused)->error().pid == 4000 + second);  // its own; the text has both
        REQUIRE(cluster.answer(refused)->error().text.contains("pid 4000 on"));
        cluster.hosts[0]->engine->session_ended(cluster.clock.now(), stale.session,
                                                engine::SessionEnd::crashed, "killed");
        cluster.hosts[0]->after_input();
        const auto fresh = job();
        cluster.run_for(100ms);
        REQUIRE(group_of(cluster, fresh).id != lingers.id);
        // The end of the lingering sessions is no concern of the new group.
        cluster.end_session(lingers, 0);
        cluster.run_for(2s);
        Program program(cluster, group_of(cluster, fresh));
        program.add({OpKind::barrier, Dtype::f32, ReduceOp::sum, 0, 0});
        program.start(10us);
        REQUIRE(cluster.run());
        REQUIRE(program.wrong() == "");
    }
}

TEST_CASE("an open that is cancelled, or whose process ends, leaves room for another") {
    ClusterShape shape;
    shape.nodes = 2;
    Cluster cluster(1, shape);
    const auto cancelled = cluster.open(0, "job", 2, 0);
    const auto ended = cluster.open(1, "job", 2, 1);
    for (const size_t host : {size_t{0}, size_t{1}}) {
        const auto forming = cluster.hosts[host]->engine->snapshot(cluster.clock.now()).forming;
        REQUIRE(forming.size() == 1);
        REQUIRE(
            (forming[0].name == "job" && forming[0].size == 2 && forming[0].here[0].rank == int64_t(host)));
    }
    cluster.hosts[0]->engine->cancel(cluster.clock.now(), cancelled.session, cancelled.ticket);
    cluster.hosts[0]->after_input();
    cluster.hosts[1]->engine->session_ended(cluster.clock.now(), ended.session, engine::SessionEnd::crashed,
                                            "it crashed");
    cluster.hosts[1]->after_input();
    cluster.run_for(100ms);
    REQUIRE(cluster.answer(cancelled)->error().code == Errc::cancelled);
    REQUIRE(cluster.answer(ended) == nullptr);

    const std::vector<Cluster::Open> opens{cluster.open(0, "job", 2, 0), cluster.open(1, "job", 2, 1)};
    cluster.run_for(1s);

    Program program(cluster, group_of(cluster, opens));
    program.add({OpKind::barrier, Dtype::f32, ReduceOp::sum, 0, 0});
    program.start(10us);
    REQUIRE(cluster.run());
    REQUIRE(program.wrong() == "");
}

TEST_CASE("a group is made and works although two nodes that lead do not reach each other", "[R36]") {
    for (const uint64_t seed : seeds(20)) {
        CAPTURE(seed);
        ClusterShape shape;
        shape.nodes = 4;
        Cluster cluster(seed, shape);
        std::vector<uint32_t> hosts(4);
        std::iota(hosts.begin(), hosts.end(), 0);
        std::ranges::sort(hosts, {}, [&](uint32_t host) { return cluster.hosts[host]->id; });
        for (const bool back : {false, true}) cluster.block(hosts[back], hosts[!back], true);
        if (seed % 2 == 0) cluster.run_for(10s);  // or their opens come before they notice it
        std::vector<Cluster::Open> opens;
        const uint32_t without = seed % 4 < 2 ? 0 : 1;
        for (uint32_t i = 0; i < 4; ++i)
            if (i != without) opens.push_back(cluster.open(hosts[i], "job", 3, -1));
        for (int i = 0;
             i < 40 && !std::ranges::all_of(opens, [&](const auto& o) { return cluster.answer(o); }); ++i)
            cluster.run_for(500ms);
        Program program(cluster, group_of(cluster, opens));
        for (const OpKind kind : {OpKind::all_reduce, OpKind::all_gather})
            program.add({kind, Dtype::i32, ReduceOp::sum, 3000, 0}, true);
        program.start(50us, 2);
        REQUIRE(cluster.run(60s));
        for (const Step& step : program.steps) REQUIRE(program.wrong(step) == "");
        cluster.check();
    }
}

}  // namespace nexar::sim
