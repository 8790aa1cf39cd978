// Which target is dialled when: rotation, back-off, turns, fast redials [P5].
#include "connections/dial_schedule.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <vector>

#include "nodes.hpp"

namespace nexar::connections {
namespace {

const Target a{node_id(1), {}}, b{node_id(2), {}}, seed{{}, "seed:1"};

DialConfig config(size_t dials_max = 8) {
    DialConfig out;
    out.dials_max = dials_max;
    return out;
}
std::vector<DialSchedule::Due> due(DialSchedule& schedule, Time now) {
    std::vector<DialSchedule::Due> out;
    while (const auto one = schedule.poll_due(now)) out.push_back(*one);
    schedule.check_invariants();
    return out;
}

TEST_CASE("a target is dialled address by address, and each round waits twice as long", "[connections][P5]") {
    DialSchedule schedule(config(), Random(1));
    schedule.add(a, 3);
    CHECK(schedule.wake_at() == never);  // idle until start
    schedule.start(a, at_ms(5));
    CHECK(schedule.wake_at() == at_ms(5));
    CHECK(due(schedule, at_ms(4)).empty());
    std::vector<size_t> addresses;
    std::vector<Duration> waits;
    Time now = at_ms(5);
    for (int i = 0; i < 24; ++i) {
        const auto dials = due(schedule, now);
        REQUIRE(dials.size() == 1);
        addresses.push_back(dials[0].address);
        schedule.failed(a, now);
        waits.push_back(schedule.wake_at() - now);
        now = schedule.wake_at();
    }
    for (size_t i = 0; i < addresses.size(); ++i) CHECK(addresses[i] == i % 3);
    CHECK(waits.front() < at_ms(65).time_since_epoch());
    CHECK(waits.back() >= at_ms(1500).time_since_epoch());
    for (const Duration wait : waits) CHECK(wait <= at_ms(2000).time_since_epoch());
}

TEST_CASE("a dial without an answer has failed in time, and takes its place until then",
          "[connections][P5]") {
    DialSchedule schedule(config(), Random(1));
    schedule.add(a, 1);
    schedule.start(a, at_ms(0));
    REQUIRE(due(schedule, at_ms(0)).size() == 1);
    CHECK(schedule.is_dialling(a));
    CHECK(schedule.wake_at() == at_ms(3000));
    CHECK_FALSE(schedule.unanswered(at_ms(2999)));
    CHECK(schedule.unanswered(at_ms(3000)) == a);
    schedule.failed(a, at_ms(3000));
    CHECK(schedule.dials() == 0);
    CHECK_FALSE(schedule.unanswered(at_ms(3000)));
}

TEST_CASE("a target that was lost is redialled quickly, at the pace of its round trip",
          "[connections][P5][F1]") {
    DialSchedule schedule(config(), Random(1));
    schedule.add(a, 2);
    const bool far = GENERATE_COPY(false, true);
    const Duration pace = far ? at_ms(90).time_since_epoch() : at_ms(1).time_since_epoch();
    schedule.start(a, at_ms(0), true, pace);
    Time now = at_ms(0);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(due(schedule, now).size() == 1);
        schedule.failed(a, now);
        CHECK(schedule.wake_at() - now == (far ? pace : at_ms(20).time_since_epoch()));
        now = schedule.wake_at();
    }
    REQUIRE(due(schedule, now).size() == 1);
    schedule.failed(a, now);
    CHECK(schedule.wake_at() - now >= at_ms(50).time_since_epoch());  // then it backs off
}

TEST_CASE("of many that never answer all have their turn, and a quarter of the places waits for the lost",
          "[connections][P5][H7]") {
    DialSchedule schedule(config(8), Random(1));
    std::map<Target, int> turns;
    for (unsigned n = 10; n < 40; ++n) {
        schedule.add({node_id(n), {}}, 1);
        schedule.start({node_id(n), {}}, at_ms(0));
    }
    for (Time now = at_ms(0); now < at_ms(40'000); now = std::max(now, schedule.wake_at())) {
        while (const auto target = schedule.unanswered(now)) schedule.failed(*target, now);
        for (const auto& dial : due(schedule, now)) ++turns[dial.target];
        CHECK(schedule.dials() <= 6);
    }
    REQUIRE(turns.size() == 30);
    for (const auto& [target, count] : turns) CHECK(count >= 2);

    schedule.add(a, 1);
    schedule.start(a, at_ms(40'000), true);
    const auto dials = due(schedule, at_ms(40'000));
    REQUIRE(dials.size() >= 1);
    CHECK(dials[0].target == a);
}

TEST_CASE("a connected target is not dialled, an answered one not before its time", "[connections][P5]") {
    DialSchedule schedule(config(), Random(1));
    for (const Target& target : {a, b, seed}) {
        schedule.add(target, 1);
        schedule.start(target, at_ms(0));
    }
    REQUIRE(due(schedule, at_ms(0)).size() == 3);
    schedule.stop(a);
    schedule.postpone(b, at_ms(500));
    schedule.remove(seed);
    CHECK(schedule.dials() == 0);
    CHECK(schedule.wake_at() == at_ms(500));
    CHECK(due(schedule, at_ms(499)).empty());
    CHECK(due(schedule, at_ms(500)).size() == 1);
    schedule.start(a, at_ms(600));
    CHECK(due(schedule, at_ms(600)).size() == 1);
}

TEST_CASE("a connection uses up the fast redials that led to it; the back-off goes on where it was",
          "[connections][P5][B8]") {
    DialSchedule schedule(config(), Random(1));
    schedule.add(a, 1);
    schedule.start(a, at_ms(0), true);
    Duration last{};
    for (int i = 0; i < 4; ++i) {
        const Time now = i == 0 ? at_ms(0) : schedule.wake_at();
        REQUIRE(due(schedule, now).size() == 1);
        schedule.stop(a);
        schedule.failed(a, now);
        const Duration wait = schedule.wake_at() - now;
        CHECK(wait >= config().backoff_min);
        CHECK(wait > last);
        last = wait;
    }
}

TEST_CASE("a target without an address waits for one, and what is not known is ignored",
          "[connections][P5]") {
    DialSchedule schedule(config(), Random(1));
    schedule.add(a, 0);
    schedule.start(a, at_ms(0));
    CHECK(schedule.wake_at() == never);
    CHECK(due(schedule, at_ms(10)).empty());
    schedule.failed(a, at_ms(10));
    schedule.check_invariants();
    schedule.add(a, 2);
    CHECK(due(schedule, at_ms(5000)).size() == 1);
    schedule.failed(a, at_ms(5000));
    schedule.add(a, 1);  // the second address, which was next, is no more
    const auto dials = due(schedule, at_ms(10'000));
    REQUIRE(dials.size() == 1);
    CHECK(dials[0].address == 0);

    schedule.start(b, at_ms(0));
    schedule.postpone(b, at_ms(0));
    schedule.stop(b);
    schedule.failed(b, at_ms(0));
    schedule.remove(b);
    CHECK_FALSE(schedule.is_dialling(b));
    schedule.check_invariants();
}

}  // namespace
}  // namespace nexar::connections
