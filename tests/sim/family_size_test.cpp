// Large families on one node: how long one turn of the loop takes, and how much memory the children do
// (docs/protocol/children.md [Y16]). The times are printed, for people: [.measure].
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fstream>

#include "engine/making.hpp"
#include "family.hpp"

namespace nexar::sim {
namespace {

uint64_t resident_kib() {
    std::ifstream file("/proc/self/statm");
    uint64_t all = 0, resident = 0;
    file >> all >> resident;
    return resident * 4;
}

struct Measured {
    double longest_ms = 0, whole_ms = 0;
    uint64_t kib = 0;
};

// All ranks on one node; what the turns of its loop take from the last rank's call on.
Measured measure(uint32_t ranks, bool split) {
    ClusterShape shape = shape_of(1);
    Cluster cluster(1, shape);
    Family family(cluster, cluster.make_group(std::vector<uint32_t>(ranks)));
    const auto call = [&](uint32_t rank) {
        if (split)
            family.start(OpKind::group_split, rank, {rank, 0});
        else
            family.start(OpKind::group_dup, rank);
    };
    for (uint32_t rank = 0; rank + 1 < ranks; ++rank) call(rank);
    Measured out;
    const uint64_t before = resident_kib();
    const auto timed = [&out](auto&& f) {
        const auto begin = std::chrono::steady_clock::now();
        f();
        const double ms =
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
        out.longest_ms = std::max(out.longest_ms, ms);
        out.whole_ms += ms;
    };
    timed([&] { call(ranks - 1); });
    engine::Engine& engine = *cluster.hosts[0]->engine;
    for (int turn = 0; turn < 100'000 && engine.wake_at() <= cluster.clock.now(); ++turn)
        timed([&] { engine.on_time(cluster.clock.now()); });
    REQUIRE(cluster.run());
    out.kib = resident_kib() - before;
    REQUIRE(family.all_ok());
    return out;
}

}  // namespace

TEST_CASE("[Y16] a large family is made in portions, users in turns, and others are served between them") {
    Cluster cluster(2, shape_of(1));
    Family large(cluster, cluster.make_group(std::vector<uint32_t>(300)));
    Family small(cluster, cluster.make_group(std::vector<uint32_t>(20)));  // another user's
    const SimGroup third = cluster.make_group({0, 0});
    engine::Engine& engine = *cluster.hosts[0]->engine;
    const auto groups = [&] { return engine.groups({}); };
    large.split([](uint32_t rank) { return ChildCall{rank, 0}; });
    size_t before = groups();
    REQUIRE(before <= 3 + engine::Making::children_at_once_max);
    small.split([](uint32_t rank) { return ChildCall{rank, 0}; });
    REQUIRE(engine.wake_at() <= cluster.clock.now());
    // An operation of a third one is over at once.
    std::vector<Call*> calls;
    for (const uint32_t rank : {0u, 1u})
        calls.push_back(&cluster.submit(third, rank, request_of({OpKind::barrier}), {}, 0));
    for (const Call* call : calls) REQUIRE(call->ok());
    size_t turns = 0;
    for (before = groups(); !large.calls[299]->ended; before = groups(), ++turns) {
        REQUIRE(engine.wake_at() <= cluster.clock.now());
        engine.on_time(cluster.clock.now());
        REQUIRE(groups() <= before + engine::Making::children_at_once_max);
        if (turns == 2) REQUIRE(small.all_ok());
        REQUIRE(turns < 30);
    }
    REQUIRE(turns >= 300 / engine::Making::children_at_once_max - 1);
    REQUIRE(large.all_ok());
    REQUIRE(engine.wake_at() > cluster.clock.now());
    REQUIRE(run_everything(cluster, large.child_of(17)) == "");
    REQUIRE(run_everything(cluster, small.child_of(3)) == "");
    cluster.check();
}

TEST_CASE("[Y16] what ends a large family between its portions leaves no child that works, and no charge") {
    for (const bool aborted : {false, true}) {
        CAPTURE(aborted);
        Cluster cluster(3, shape_of(1));
        Family family(cluster, cluster.make_group(std::vector<uint32_t>(200)));
        engine::Engine& engine = *cluster.hosts[0]->engine;
        family.split([](uint32_t rank) { return ChildCall{rank, 0}; });
        REQUIRE(engine.groups({}) > 1);
        REQUIRE_FALSE(family.calls[0]->ended);
        if (aborted)
            REQUIRE(cluster.abort_group(family.parent, 5, "enough"));
        else
            cluster.cancel(family.parent, 5, *family.calls[5]);
        REQUIRE(cluster.run(40s));
        for (uint32_t rank = 0; rank < 200; ++rank) {
            REQUIRE(family.calls[rank]->outcome.child == nullptr);
            const Errc code = family.calls[rank]->outcome.error.code;
            const Errc others = aborted ? Errc::peer_lost : Errc::aborted,
                       own = aborted ? Errc::closed : Errc::cancelled;
            REQUIRE(code == (rank == 5 ? own : others));
        }
        // A child that has failed is there until its rank leaves, as each group is.
        for (const auto& group : engine.snapshot(cluster.clock.now()).groups)
            if (group.id != family.parent.id) REQUIRE(group.failed.code != Errc::ok);
        for (uint32_t rank = 0; rank < 200; ++rank) cluster.end_session(family.parent, rank, false);
        cluster.run_for(10s);
        REQUIRE(engine.groups({}) == 0);
        REQUIRE(
            cluster.hosts[0]->tenants.of("", 1000 + family.parent.id.counter % 3)->used(Resource::groups) ==
            0);
        cluster.check();
    }
}

namespace {

uint64_t thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

// The quickest of many barriers of the group.
uint64_t barrier_ns(Cluster& cluster, const SimGroup& group) {
    engine::Engine& engine = *cluster.hosts[0]->engine;
    uint64_t best = UINT64_MAX;
    for (uint64_t n = 0; n < 400; ++n) {
        engine::OpRequest request = request_of({OpKind::barrier});
        request.group = group.id;
        const uint64_t begin = thread_ns();
        for (const uint32_t rank : {0u, 1u}) {
            request.session = group.sessions[rank];
            request.rank = rank;
            request.ticket = 1'000'000'000 + n;
            REQUIRE(engine.submit(cluster.clock.now(), request));
        }
        best = std::min(best, thread_ns() - begin);
    }
    cluster.errors.clear();  // of completions that no call waits for
    return best;
}

}  // namespace

TEST_CASE("[Y17] a thousand groups that are alive cost an operation of one of them nothing") {
    Cluster cluster(4, shape_of(1));
    Family family(cluster, cluster.make_group({0, 0}));
    engine::Engine& engine = *cluster.hosts[0]->engine;
    const uint64_t alone = barrier_ns(cluster, family.parent);
    std::vector<SimGroup> alive;
    for (int n = 0; n < 1000; ++n) {
        family.dup();
        REQUIRE(cluster.run());
        alive.push_back(family.child_of(0));
    }
    const uint64_t visited = engine.groups_visited(), rows = engine.rows_looked_at();
    uint64_t among = UINT64_MAX;
    for (const size_t which : {size_t{0}, size_t{500}, size_t{999}})
        among = std::min(among, barrier_ns(cluster, alive[which]));
    REQUIRE(engine.groups_visited() == visited);
    REQUIRE(engine.rows_looked_at() == rows);
    CAPTURE(alone, among);
    REQUIRE(among < 2 * alone + 1000);  // a cost for each group would be hundreds of times as much
}

TEST_CASE("what a dup and a split of 4096 ranks on one node take", "[.measure]") {
    for (const bool split : {false, true}) {
        const Measured m = measure(4096, split);
        std::printf("%s of 4096 ranks on one node: longest turn %.1f ms, all turns %.1f ms, %.1f MiB\n",
                    split ? "split into 4096" : "dup", m.longest_ms, m.whole_ms, double(m.kib) / 1024);
    }
}

}  // namespace nexar::sim
