// [P13]: when silence on a bulk connection is a fault.
#include "connections/bulk_watch.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar::connections {
namespace {

using namespace std::chrono_literals;
using Action = BulkWatch::Action;

const PeerIndex a(1), b(2);
constexpr BulkWatchConfig config{1s, 5s};

}  // namespace

TEST_CASE("nothing is due while no transfer waits", "[connections][P13]") {
    BulkWatch watch(config);
    CHECK(watch.wake_at() == never);
    watch.set_waiting(true, Time{10s});
    CHECK(watch.wake_at() == Time{11s});
    CHECK_FALSE(watch.due(Time{10s}));
    CHECK(watch.due(Time{11s}));
    watch.set_waiting(false, Time{10s});
    CHECK(watch.wake_at() == never);
}

TEST_CASE("a silent peer is probed, then its connection is renewed, then it is cut off",
          "[connections][P13][D21]") {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    std::vector<Action> seen;
    for (int second = 1; second <= 13; ++second) {
        const auto judged = watch.look({a}, Time{std::chrono::seconds(second)});
        REQUIRE(judged.size() == 1);
        seen.push_back(judged[0].action);
    }
    std::vector<Action> expected(13, Action::probe);  // silent from the first look on
    expected[5] = Action::renew;
    expected[10] = expected[11] = expected[12] = Action::cut_off;
    CHECK(seen == expected);
}

TEST_CASE("who sends something is never judged, however long a transfer waits", "[connections][P13]") {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    for (int second = 1; second <= 60; ++second) {
        watch.received(a);
        const auto judged = watch.look({a, b}, Time{std::chrono::seconds(second)});
        CHECK(judged[0] == BulkWatch::Judged{a, Action::probe});
        if (second > 11) CHECK(judged[1] == BulkWatch::Judged{b, Action::cut_off});
    }
}

TEST_CASE("silence counts while transfers wait only", "[connections][P13]") {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    for (int second = 1; second <= 60; ++second) {
        const bool waits = second % 4 != 0;
        for (const auto& judged : watch.look(waits ? std::vector{a} : std::vector<PeerIndex>{},
                                             Time{std::chrono::seconds(second)}))
            CHECK(judged.action == Action::probe);
    }
}

TEST_CASE("a process that did not run starts all silences again", "[connections][P13]") {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    for (int second = 1; second <= 4; ++second) watch.look({a}, Time{std::chrono::seconds(second)});
    CHECK(watch.look({a}, Time{100s})[0].action == Action::probe);
    CHECK(watch.look({a}, Time{104s})[0].action == Action::probe);
}

}  // namespace nexar::connections
