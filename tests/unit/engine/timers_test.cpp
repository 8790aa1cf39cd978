// Deadlines: in order of time, and of those that fall together some in a turn of the loop, users in turns.
#include "engine/timers.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <vector>

namespace nexar::engine {
namespace {

using namespace std::chrono_literals;

struct Recorder final : Alarm {
    Recorder(Timers& timers, std::vector<int>& fired, int name, uint64_t user = 1)
        : Alarm(timers, user), fired_(fired), name_(name) {}
    void on_time() override {
        fired_.push_back(name_);
        if (again != never) wake_at(again);
        ends.reset();
    }
    std::vector<int>& fired_;
    int name_;
    Time again = never;
    std::unique_ptr<Recorder> ends;  // that it ends when it fires
};

constexpr Time due{10ms};

// One turn of the loop; each alarm takes `each`.
struct Loop {
    explicit Loop(Duration each_takes = {}) : each(each_takes) {}
    std::vector<int> turn(Time now) {
        fired.clear();
        timers.run(now, [&] { return now + each * static_cast<int64_t>(fired.size()); });
        return fired;
    }
    // `count` alarms that fall together, named from `first` on.
    void add(uint64_t user, int first, int count, Time at = due) {
        for (int i = 0; i < count; ++i) {
            alarms.push_back(std::make_unique<Recorder>(timers, fired, first + i, user));
            alarms.back()->wake_at(at);
        }
    }
    Duration each;
    std::vector<int> fired;
    Timers timers;
    std::vector<std::unique_ptr<Recorder>> alarms;
};

bool has(const std::vector<int>& names, int name) {
    return std::ranges::find(names, name) != names.end();
}

}  // namespace

TEST_CASE("a time-out of centuries is a deadline that never comes, not one that has passed") {
    const Time now(Duration(1'000'000'000'000));
    CHECK(deadline_after(now, Duration(5)) == now + Duration(5));
    CHECK(deadline_after(now, Duration::max()) == never);
    CHECK(deadline_after(now, never - now) == never);
    CHECK(deadline_after(now, never - now - Duration(1)) == never - Duration(1));
}

TEST_CASE("alarms ring in time order, once, and not after they are gone") {
    Loop loop;
    Recorder one(loop.timers, loop.fired, 1), two(loop.timers, loop.fired, 2);
    one.wake_at(Time{} + 20ms);
    two.wake_at(Time{} + 10ms);
    {
        Recorder three(loop.timers, loop.fired, 3);
        three.wake_at(Time{} + 5ms);
    }
    REQUIRE(loop.timers.next() == Time{} + 10ms);

    REQUIRE(loop.turn(Time{} + 9ms).empty());
    REQUIRE(loop.turn(Time{} + 30ms) == std::vector<int>{2, 1});
    REQUIRE(loop.timers.next() == never);
}

TEST_CASE("a user's alarms that come and go before the deadlines are looked at leave nothing behind") {
    Loop loop;
    for (const uint64_t user : {7U, 8U, 7U}) {
        Recorder first(loop.timers, loop.fired, 1, user), second(loop.timers, loop.fired, 2, user);
        second.wake_at(Time{} + 2ms);
        first.wake_at(Time{} + 3ms);  // not the latest of its user
        second.wake_at(Time{} + 4ms);
        first.wake_at(Time{} + 1ms);
    }
    CHECK(loop.timers.next() == never);
    CHECK(loop.turn(due).empty());

    Recorder stays(loop.timers, loop.fired, 3, 8);
    stays.wake_at(Time{} + 5ms);
    {
        Recorder goes(loop.timers, loop.fired, 4, 7), with_it(loop.timers, loop.fired, 5, 8);
    }
    CHECK(loop.timers.next() == Time{} + 5ms);
    stays.wake_at(Time{} + 6ms);
    CHECK(loop.turn(Time{} + 5ms).empty());
    CHECK(loop.turn(Time{} + 6ms) == std::vector<int>{3});
}

TEST_CASE("deadlines that fall together fire some in a turn, in order, and the rest is due at once",
          "[N16]") {
    constexpr int many = 5000;
    Loop loop;
    loop.add(1, 0, many);
    std::vector<int> all;
    while (loop.timers.next() <= due) {
        const std::vector<int> some = loop.turn(due);
        REQUIRE_FALSE(some.empty());
        REQUIRE(some.size() <= Timers::at_once_max);
        all.insert(all.end(), some.begin(), some.end());
    }
    CHECK(all.size() == many);
    CHECK(std::ranges::is_sorted(all));
    CHECK(loop.timers.next() == never);
}

TEST_CASE("a turn of deadlines is over after its time, and fires one at least", "[N16]") {
    for (const Duration each : {Duration(1us), Duration(20us), Duration(10ms)}) {
        Loop loop(each);
        loop.add(1, 0, 100);
        const size_t fired = loop.turn(due).size();
        CHECK(fired >= 1);
        CHECK((fired - 1) * each < Timers::time_max);
    }
}

TEST_CASE("a user's deadline does not wait behind very many of another user", "[N16]") {
    Loop loop(Duration(20us));
    loop.add(1, 0, 5000);
    loop.add(2, 7000, 2);
    const std::vector<int> first = loop.turn(due);
    CHECK(has(first, 7000));
    CHECK(has(loop.turn(due), 7001));

    SECTION("nor one that comes later") {
        loop.add(3, 8000, 1, due + 1ms);
        CHECK(has(loop.turn(due + 1ms), 8000));
    }
    SECTION("and users with very many are served alike") {
        loop.add(3, 10'000, 1000);
        size_t one = 0, three = 0;
        for (int turns = 0; turns < 20; ++turns)
            for (const int name : loop.turn(due)) ++(name < 10'000 ? one : three);
        CHECK(std::max(one, three) - std::min(one, three) <= 1);
    }
}

TEST_CASE("an alarm that arms itself again for a time that has passed does not hold the turn", "[N16]") {
    Loop loop;
    loop.add(1, 0, 2);
    loop.alarms[0]->again = due;
    CHECK(loop.turn(due).size() == Timers::at_once_max);
    CHECK(loop.timers.next() <= due);
}

TEST_CASE("an alarm may end others as it fires, its user's last ones too", "[N16]") {
    Loop loop;
    loop.add(2, 50, 1);
    auto first = std::make_unique<Recorder>(loop.timers, loop.fired, 1);
    first->ends = std::make_unique<Recorder>(loop.timers, loop.fired, 2);
    first->ends->wake_at(due);
    first->wake_at(due);
    loop.add(3, 60, 1);
    loop.alarms[0]->ends = std::move(first);  // whichever is first ends the other ones
    const std::vector<int> fired = loop.turn(due);
    CHECK(has(fired, 50));
    CHECK(has(fired, 60));
    CHECK_FALSE(has(fired, 2));
    CHECK(loop.timers.next() == never);
}

}  // namespace nexar::engine
