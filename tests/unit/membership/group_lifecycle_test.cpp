// The agreement on a group's end (docs/protocol/group_lifecycle.md), under random schedules: who stops, at
// which of its messages, which links are cut, and what each rule is for.
#include "membership/group_lifecycle.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "lifecycle_cluster.hpp"

namespace nexar::membership {
namespace {

constexpr uint64_t seeds = 300;

std::string play(const LifecycleScenario& scenario) {
    return LifecycleCluster(scenario).run();
}

// The first of many seeds at which something is wrong.
template <class Make>
std::string first_wrong(uint64_t count, Make make) {
    for (uint64_t seed = 0; seed < count; ++seed) {
        LifecycleScenario scenario = make(seed);
        scenario.seed = seed;
        if (const std::string wrong = play(scenario); !wrong.empty())
            return "seed " + std::to_string(seed) + ": " + wrong;
    }
    return {};
}

}  // namespace

TEST_CASE("[G3] when a process fails, the cut is what every rank had handed over") {
    for (uint64_t seed = 0; seed < seeds; ++seed) {
        LifecycleScenario scenario;
        scenario.nodes = 2 + static_cast<uint32_t>(seed % 4);
        scenario.seed = seed;
        scenario.process_fails = {static_cast<uint32_t>(seed % scenario.nodes)};
        LifecycleCluster cluster(scenario);
        CAPTURE(seed);
        REQUIRE(cluster.run().empty());
        for (uint32_t node = 0; node < scenario.nodes; ++node)
            CHECK(cluster.decided(node)->seq == cluster.handed_over());
    }
}

TEST_CASE("[G1] processes that fail at once end the group once") {
    CHECK(first_wrong(seeds, [](uint64_t seed) {
              LifecycleScenario s;
              s.nodes = 4;
              s.process_fails = {static_cast<uint32_t>(seed % 4), static_cast<uint32_t>(seed / 4 % 4)};
              return s;
          }).empty());
}

TEST_CASE("[G1] [G2] [G6] a coordinator stops at each of its messages") {
    for (uint32_t nodes = 2; nodes <= 5; ++nodes)
        for (size_t after = 0; after <= 5 * nodes; ++after) {
            CAPTURE(nodes, after);
            CHECK(first_wrong(40, [&](uint64_t seed) {
                      LifecycleScenario s;
                      s.nodes = nodes;
                      s.stops_after = {{0, after}};
                      if (after > 0) s.process_fails = {static_cast<uint32_t>(seed % nodes)};
                      return s;
                  }) == "");
        }
}

TEST_CASE("[G1] [G6] two nodes stop, each at any of its messages") {
    CHECK(first_wrong(20 * seeds, [](uint64_t seed) {
              LifecycleScenario s;
              s.nodes = 3 + static_cast<uint32_t>(seed % 3);
              Random random(seed);
              s.stops_after = {{0, random.below(16)},
                               {1 + static_cast<uint32_t>(random.below(2)), random.below(12)}};
              s.process_fails = {static_cast<uint32_t>(random.below(s.nodes))};
              return s;
          }) == "");
}

TEST_CASE("[G5] [G7] both ends of a lost link, and everybody else, end with the same failure") {
    CHECK(first_wrong(10 * seeds, [](uint64_t seed) {
              LifecycleScenario s;
              s.nodes = 3 + static_cast<uint32_t>(seed % 3);
              Random random(seed);
              const auto a = static_cast<uint32_t>(random.below(s.nodes));
              const auto b = (a + 1 + static_cast<uint32_t>(random.below(s.nodes - 1))) % s.nodes;
              s.links_cut = {{a, b}};
              if (random.one_in(2)) s.process_fails = {static_cast<uint32_t>(random.below(s.nodes))};
              return s;
          }) == "");
}

TEST_CASE("[G1] [G7] a running node that was found lost ends as the others do") {
    CHECK(first_wrong(10 * seeds, [](uint64_t seed) {
              LifecycleScenario s;
              s.nodes = 3 + static_cast<uint32_t>(seed % 3);
              Random random(seed);
              s.wrongly_lost = static_cast<uint32_t>(random.below(s.nodes));
              if (random.one_in(2)) s.process_fails = {static_cast<uint32_t>(random.below(s.nodes))};
              return s;
          }) == "");
}

TEST_CASE("[G6] a collective that does not end is reported, and the cut is at most there") {
    for (uint64_t seed = 0; seed < seeds; ++seed) {
        LifecycleScenario scenario;
        scenario.nodes = 3;
        scenario.seed = seed;
        scenario.stuck = true;
        scenario.process_fails = {0};
        LifecycleCluster cluster(scenario);
        CAPTURE(seed);
        REQUIRE(cluster.run().empty());
        for (uint32_t node = 0; node < 3; ++node)
            CHECK(cluster.decided(node)->seq <= std::max(LifecycleCluster::stuck_at, cluster.handed_over()));
    }
}

TEST_CASE("[G6] a coordinator that goes silent and is never found lost keeps nobody waiting") {
    struct Alone final : LifecycleHost {
        bool suspects(uint32_t) const override { return false; }
        uint64_t handed_over() const override { return 4; }
        uint64_t ended_below() const override { return 3; }
        void freeze() override {}
        void run_below(uint64_t) override {}
        void cut(const wire::Cut& c) override { ended_at = c.seq; }
        std::optional<uint64_t> ended_at;
    } host;
    GroupLifecycle machine(host, {{}, GroupEpoch(1), 3, 2});
    const wire::FailedSet failed{{Errc::peer_lost, "x", 0, -1, {}}, {}};
    REQUIRE(machine.on_message(0, wire::GroupFreeze{{}, 1, {9, 0}, failed}, Time{}));
    REQUIRE(machine.wake_at() == Time{} + Duration{30'000'000'000});
    machine.on_time(machine.wake_at());
    CHECK(machine.state() == GroupLifecycle::State::ended);
    CHECK(host.ended_at == 3);
    machine.check_invariants();
}

TEST_CASE("[G6] a node that is excluded and reaches nobody else does not wait for the whole limit") {
    struct Cut final : LifecycleHost {
        bool suspects(uint32_t) const override { return true; }
        uint64_t handed_over() const override { return 4; }
        uint64_t ended_below() const override { return 3; }
        void freeze() override {}
        void run_below(uint64_t) override {}
        void cut(const wire::Cut&) override {}
    } host;
    GroupLifecycle machine(host, {{}, GroupEpoch(1), 2, 1});
    machine.on_failure({{Errc::link_lost, "x", 0, 1, {}}, 1},
                       Time{});  // it is the higher end of the lost link
    REQUIRE(machine.state() == GroupLifecycle::State::frozen);
    REQUIRE(machine.wake_at() == Time{} + Duration{5'000'000'000});
    machine.on_time(machine.wake_at());
    CHECK(machine.state() == GroupLifecycle::State::ended);
}

TEST_CASE("[G6] a collective that moves on is waited for, one that does not is reported as stuck") {
    struct Slow final : LifecycleHost {
        bool suspects(uint32_t) const override { return false; }
        uint64_t handed_over() const override { return 4; }
        uint64_t ended_below() const override { return 3; }
        uint64_t progress() const override { return segments; }
        void freeze() override {}
        void run_below(uint64_t) override {}
        void cut(const wire::Cut&) override {}
        uint64_t segments = 0;
    } host;
    GroupLifecycle machine(host, {{}, GroupEpoch(1), 2, 1});
    const wire::FailedSet failed{{Errc::peer_lost, "x", 0, -1, {}}, {}};
    REQUIRE(machine.on_message(0, wire::GroupFreeze{{}, 1, {1, 0}, failed}, Time{}));
    REQUIRE(machine.on_message(0, wire::GroupCut{{}, 1, {1, 0}, {4, failed}}, Time{}));
    while (machine.poll_send()) {
    }
    for (int looks = 0; looks < 3; ++looks) {
        ++host.segments;
        machine.on_time(machine.wake_at());
        CHECK(!machine.poll_send());
    }
    const bool moves_for_ever = GENERATE(false, true);  // it is given up while all can still agree on that
    if (moves_for_ever) {
        ++host.segments;
        machine.on_time(machine.wake_at());
        ++host.segments;
    }
    machine.on_time(machine.wake_at());
    CHECK(machine.state() == GroupLifecycle::State::frozen);
    const auto answer = machine.poll_send();
    REQUIRE(answer);
    CHECK(std::get<wire::GroupAccepted>(answer->message).stuck_at == 3);
}

TEST_CASE("[G10] the ballot of an accepted cut is checked as well") {
    struct Nobody final : LifecycleHost {
        bool suspects(uint32_t) const override { return false; }
        uint64_t handed_over() const override { return 0; }
        uint64_t ended_below() const override { return 0; }
        void freeze() override {}
        void run_below(uint64_t) override {}
        void cut(const wire::Cut&) override {}
    } host;
    GroupLifecycle machine(host, {{}, GroupEpoch(1), 3, 0});
    const wire::FailedSet failed{{Errc::peer_lost, "x", 0, -1, {}}, {}};
    machine.on_failure({failed.error, {}}, Time{});
    wire::GroupReport report{{}, 1, {1, 0}, failed, 4, 4, wire::AcceptedCut{{1, 3}, {4, failed}}};
    CHECK(!machine.on_message(1, report, Time{}));
    report.accepted->ballot = {UINT64_MAX, 1};
    CHECK(!machine.on_message(1, report, Time{}));
}

TEST_CASE("[G9] nodes that had left the group are not waited for") {
    CHECK(first_wrong(seeds, [](uint64_t seed) {
              LifecycleScenario s;
              s.nodes = 4;
              s.departs = {static_cast<uint32_t>(seed % 4)};
              s.process_fails = {static_cast<uint32_t>((seed + 1 + seed / 4 % 3) % 4)};
              if (seed % 3 == 0) s.stops_after = {{static_cast<uint32_t>((seed + 2) % 4), seed % 9}};
              return s;
          }) == "");
}

TEST_CASE("[G10] a ballot of another node and an unknown node are refused") {
    struct Nobody final : LifecycleHost {
        bool suspects(uint32_t) const override { return false; }
        uint64_t handed_over() const override { return 0; }
        uint64_t ended_below() const override { return 0; }
        void freeze() override {}
        void run_below(uint64_t) override {}
        void cut(const wire::Cut&) override {}
    } host;
    GroupLifecycle machine(host, {{}, GroupEpoch(1), 3, 0});
    const Error error{Errc::peer_lost, "x", 0, -1, {}};
    CHECK(!machine.on_message(1, wire::GroupFreeze{{}, 1, {1, 2}, {error, {}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupFreeze{{}, 1, {0, 1}, {error, {}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupFreeze{{}, 1, {UINT64_MAX, 1}, {error, {}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupFailed{{}, 1, {UINT64_MAX, 2}, {error, {}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupFailed{{}, 1, {5, 3}, {error, {}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupFreeze{{}, 1, {1, 1}, {error, {3}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupFailed{{}, 1, {}, {error, {7}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupEnd{{}, 1, {0, {error, {3}}}}, Time{}));
    CHECK(!machine.on_message(1, wire::GroupCut{{}, 1, {1, 0}, {0, {error, {}}}}, Time{}));
    CHECK(machine.state() == GroupLifecycle::State::active);
    machine.check_invariants();
}

namespace {

// What a broken rule does to agreement: found within so many seeds.
std::string with(LifecycleSabotage sabotage) {
    return first_wrong(40 * seeds, [&](uint64_t seed) {
        LifecycleScenario s;
        s.nodes = 3 + static_cast<uint32_t>(seed % 3);
        s.sabotage = sabotage;
        Random random(seed);
        s.stops_after = {{0, 1 + random.below(18)}};
        if (random.one_in(2)) s.stops_after[1] = random.below(12);
        s.process_fails = {static_cast<uint32_t>(random.below(s.nodes))};
        if (random.one_in(2)) s.links_cut = {{static_cast<uint32_t>(random.below(2)), 2}};
        if (random.one_in(3)) s.wrongly_lost = static_cast<uint32_t>(random.below(s.nodes));
        return s;
    });
}

}  // namespace

TEST_CASE("sabotage: a node that accepts before its collectives are over is noticed [G2]") {
    CHECK(with({.accept_before_ended = true}) != "");
}
TEST_CASE("sabotage: a node that does not report the cut that it accepted is noticed [G1]") {
    CHECK(with({.forget_accepted = true}) != "");
}
TEST_CASE("sabotage: a node that accepts cuts of any ballot is noticed [G1]") {
    CHECK(first_wrong(40 * seeds, [](uint64_t seed) {
              LifecycleScenario s;
              s.nodes = 3;
              s.sabotage.accept_any_ballot = true;
              s.process_fails = {static_cast<uint32_t>(seed % 3)};
              s.wrongly_lost = 0;
              return s;
          }) != "");
}
TEST_CASE("sabotage: a coordinator that cuts at its own count is noticed [G3]") {
    CHECK(with({.cut_at_own_count = true}) != "");
}
TEST_CASE("without sabotage nothing is noticed") {
    CHECK(with({}) == "");
}

}  // namespace nexar::membership
