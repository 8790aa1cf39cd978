// The daemon's tick: who may call the daemon dead, and when.
#include "tick_watch.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

using namespace nexar;
using namespace nexar::c;
using namespace std::chrono_literals;

namespace {

constexpr Time start{1h};

bool expired(TickWatch& watch, Time tick, Time now) {
    return watch.expired([&] { return std::pair(tick, now); }, [](bool) {});
}

}  // namespace

TEST_CASE("a tick that stands still is believed after two more periods") {
    TickWatch watch(10s);
    CHECK(watch.check_at(start) == start + 10s);
    CHECK_FALSE(expired(watch, start, start + 10s));
    CHECK(watch.check_at(start) == start + 11s);
    CHECK_FALSE(expired(watch, start, start + 10'999ms));
    CHECK(expired(watch, start, start + 11s));
}

TEST_CASE("a tick that moves begins anew, whether or not anybody looked meanwhile") {
    TickWatch watch(10s);
    CHECK_FALSE(expired(watch, start, start + 10s));
    CHECK_FALSE(expired(watch, start + 60s, start + 70s));  // the second halt, nobody looked in between
    CHECK_FALSE(expired(watch, start + 60s, start + 70'999ms));
    CHECK_FALSE(expired(watch, start + 71s, start + 72s));
    CHECK(watch.check_at(start + 71s) == start + 81s);
}

TEST_CASE("a tick that moves after the report revokes it, and the daemon is not given up", "[S15]") {
    TickWatch watch(10s);
    static_cast<void>(expired(watch, start, start + 10s));
    Time tick = start;
    std::vector<bool> reports;
    const auto read = [&] { return std::pair(tick, start + 11s); };
    CHECK_FALSE(watch.expired(read, [&](bool given_up) {
        reports.push_back(given_up);
        tick = start + 11s;
    }));
    CHECK(reports == std::vector{true, false});
    CHECK_FALSE(watch.expired(read, [&](bool given_up) { reports.push_back(given_up); }));
    CHECK(reports.size() == 2);
}

TEST_CASE("giving the daemon up is final, and reported once", "[S15]") {
    TickWatch watch(10s);
    static_cast<void>(expired(watch, start, start + 10s));
    std::vector<bool> reports;
    const auto report = [&](bool given_up) { reports.push_back(given_up); };
    CHECK(watch.expired([] { return std::pair(start, start + 11s); }, report));
    CHECK(watch.expired([] { return std::pair(start + 12s, start + 12s); }, report));
    CHECK(reports == std::vector{true});
}

TEST_CASE("without a limit the tick is never checked") {
    CHECK(TickWatch(Duration::max()).check_at(start) == never);
}

// Both are woken when a frozen container goes on, and both find a tick that is old.
TEST_CASE("two threads that look after a second halt do not take the first one's for it", "[threads]") {
    int believed = 0;
    for (int round = 0; round < 3000; ++round) {
        TickWatch watch(10s);
        static_cast<void>(expired(watch, start, start + 10s));
        std::atomic<int> ready{0}, wrong{0};
        const auto look = [&] {
            ++ready;
            while (ready < 2) std::this_thread::yield();
            wrong += expired(watch, start + 60s, start + 75s);
        };
        std::thread other(look);
        look();
        other.join();
        believed += wrong;
    }
    CHECK(believed == 0);
}
