// Thousands of creates that wait for long: what the questions about them cost (docs/protocol/children.md
// [Y26]). Looks are counted; the times are printed, for people: [.measure].
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "creation.hpp"
#include "engine/timers.hpp"

namespace nexar::sim {
namespace {

// Node 0 has `callers` ranks, the first of the parent, and node 1 the others. Each caller begins `each`
// creates of tags of its own, whose lists have all callers and `others` ranks of node 1.
struct Late {
    Late(uint32_t callers, uint32_t each, uint32_t others)
        : cluster(1, roomy()), parent(cluster.make_group(placement(callers, others))) {
        Creation::Ranks list(callers + others);
        std::iota(list.begin(), list.end(), 0u);
        for (uint64_t n = 0; n < each; ++n)
            for (uint32_t rank = 0; rank < callers; ++rank)
                REQUIRE(begin_create(cluster, parent, rank, {list, n * callers + rank, 600s}).accepted);
    }
    static ClusterShape roomy() {
        ClusterShape shape = shape_of(2);
        shape.tenants.total(Resource::groups) = 1'000'000;
        shape.tenants.total(Resource::requests) = 1'000'000;
        shape.tenants.total(Resource::scratch_bytes) = size_t{1} << 34;
        shape.tenants.share_percent = 100;
        return shape;
    }
    static std::vector<uint32_t> placement(uint32_t callers, uint32_t others) {
        std::vector<uint32_t> out(callers + others, 1);
        std::fill_n(out.begin(), callers, 0u);
        return out;
    }
    Cluster cluster;
    SimGroup parent;
};

struct Cost {
    size_t turns = 0;
    uint64_t looks = 0, looks_of_turn = 0;  // all, and the most of a turn
    double ms = 0, ms_of_turn = 0;
};

// The turns of a node's engine from now on, as they follow from its alarms alone.
Cost turns_of(Cluster& cluster, uint32_t host, Duration time) {
    engine::Engine& engine = *cluster.hosts[host]->engine;
    const Time until = cluster.clock.now() + time;
    Cost out;
    while (engine.wake_at() <= until) {
        const uint64_t looked = engine.creates_looked_at();
        const auto begin = std::chrono::steady_clock::now();
        engine.on_time(std::max(engine.wake_at(), cluster.clock.now()));
        const double ms =
            std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
        ++out.turns;
        out.looks += engine.creates_looked_at() - looked;
        out.looks_of_turn = std::max(out.looks_of_turn, engine.creates_looked_at() - looked);
        out.ms += ms;
        out.ms_of_turn = std::max(out.ms_of_turn, ms);
    }
    return out;
}

Cost late_once(Late& late) {
    late.cluster.run_for(900ms);
    return turns_of(late.cluster, 0, 200ms);
}

}  // namespace

TEST_CASE("[Y26] a create that is late costs what its list is long, however many others are late") {
    struct Case {
        uint32_t callers, each, others;
    };
    for (const auto& [callers, each, others] :
         {Case{1, 1000, 500}, Case{1, 15'000, 500}, Case{250, 4, 2}, Case{250, 60, 2}}) {
        Late late(callers, each, others);
        CAPTURE(callers, each, others);
        const Cost cost = late_once(late);
        const uint64_t creates = uint64_t{callers} * each, list = callers + others;
        // Its list, twice a bit for each rank, and the other create of the first rank that waits elsewhere.
        const uint64_t looks_max = list + 2 * (list / 64 + 1) + 4;
        REQUIRE(cost.looks >= creates);
        REQUIRE(cost.looks <= creates * looks_max);
        REQUIRE(cost.looks_of_turn <= engine::Timers::at_once_max * looks_max);
    }
}

// Rank 1's creates are prepared on its node, and wait for the other one's answer. Rank 0's list rank 1, and
// look for what it waits in: nothing.
TEST_CASE("[Y26] a create that is late does not look through all attempts of a rank that it waits for") {
    constexpr uint64_t many = 300;
    Cluster cluster(1, Late::roomy());
    const SimGroup parent = cluster.make_group({0, 0, 1});
    std::vector<Cluster::Open> late;
    for (uint64_t tag = 0; tag < many; ++tag)
        REQUIRE(create(cluster, parent, 2, {{1, 2}, tag, 600s}).accepted);
    cluster.run_for(10ms);
    cluster.block(1, 0, true);
    for (uint64_t tag = 0; tag < many; ++tag)
        REQUIRE(create(cluster, parent, 1, {{1, 2}, tag, 600s}).accepted);
    cluster.run_for(10ms);
    for (uint64_t tag = many; tag < 2 * many; ++tag) {
        late.push_back(create(cluster, parent, 0, {{0, 1, 2}, tag, 1500ms}));
        REQUIRE(late.back().accepted);
    }
    const Cost cost = turns_of(cluster, 0, 1200ms);
    REQUIRE(cost.looks > 0);
    REQUIRE(cost.looks <= many * (64 + 16));
    cluster.block(1, 0, false);
    cluster.run_for(2s);
    for (const auto& call : late) {
        REQUIRE(cluster.answer(call)->error().code == Errc::group_incomplete);
        INFO(cluster.answer(call)->error().text);
        REQUIRE(cluster.answer(call)->error().text.find("another create") == std::string::npos);
    }
}

// The same of two ranks: rank 1 has more attempts than are looked at. The one that is missing first, rank 2,
// waits elsewhere all the same.
TEST_CASE("[Y26] of several ranks that a late create waits for each is looked at") {
    constexpr uint64_t many = 300, other = 1000, late = 2000;
    Cluster cluster(1, Late::roomy());
    const SimGroup parent = cluster.make_group({0, 0, 0, 1});
    for (uint64_t tag = 0; tag < many; ++tag)
        REQUIRE(create(cluster, parent, 3, {{1, 3}, tag, 600s}).accepted);
    cluster.run_for(10ms);
    cluster.block(1, 0, true);
    for (uint64_t tag = 0; tag < many; ++tag)
        REQUIRE(create(cluster, parent, 1, {{1, 3}, tag, 600s}).accepted);
    REQUIRE(create(cluster, parent, 2, {{1, 2}, other, 600s}).accepted);
    cluster.run_for(10ms);
    const Cluster::Open call = create(cluster, parent, 0, {{0, 2, 1}, late, 1500ms});
    cluster.run_for(2s);
    REQUIRE(cluster.answer(call)->error().code == Errc::group_incomplete);
    INFO(cluster.answer(call)->error().text);
    REQUIRE(cluster.answer(call)->error().text.find("another create, of the ranks 1, 2 with tag 1000") !=
            std::string::npos);
}

TEST_CASE("what 15000 late creates take", "[.measure]") {
    struct Case {
        uint32_t callers, each, others;
    };
    for (const auto& [callers, each, others] : {Case{1, 3750, 500}, Case{1, 15'000, 500}, Case{250, 15, 2},
                                                Case{250, 60, 2}, Case{1, 64, 60'000}}) {
        Late late(callers, each, others);
        const Cost cost = late_once(late);
        std::printf(
            "%u creates of %u ranks by %u callers: %zu turns, looks %zu, at most %zu in a turn; "
            "%.1f ms, at most %.2f ms in a turn\n",
            callers * each, callers + others, callers, cost.turns, size_t(cost.looks),
            size_t(cost.looks_of_turn), cost.ms, cost.ms_of_turn);
    }
}

}  // namespace nexar::sim
