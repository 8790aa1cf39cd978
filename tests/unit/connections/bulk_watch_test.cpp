// [P13]: when silence on a bulk connection is a fault.
#include "connections/bulk_watch.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar::connections {
namespace {

using namespace std::chrono_literals;
using Action = BulkWatch::Action;

const PeerIndex a(1), b(2);
constexpr BulkWatchConfig config{1s, 5s};
const std::vector<BulkWatch::Waiting> only_a{{a}};

// A connection over TCP that answers each probe. Its first action that is none, and when; 0: none in 60 s.
struct Crawl {
    uint64_t written = 0, acknowledged = 0, received = 0;  // at the beginning, and more in each second
    uint64_t writes = 0, acknowledges = 0, receives = 0;
};
std::pair<int, Action> first_action(Crawl crawl) {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    Moved moved{ConnectionId(1), {crawl.written, crawl.acknowledged}, crawl.received};
    for (int second = 1; second <= 60; ++second) {
        watch.received(a);
        const auto judged = watch.look({{a, moved}}, Time{std::chrono::seconds(second)});
        if (judged[0].action != Action::probe) return {second, judged[0].action};
        moved.sent.written += crawl.writes;
        moved.sent.acknowledged += crawl.acknowledges;
        moved.received += crawl.receives;
    }
    return {0, Action::probe};
}

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
        const auto judged = watch.look(only_a, Time{std::chrono::seconds(second)});
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
        const auto judged = watch.look({{a}, {b}}, Time{std::chrono::seconds(second)});
        CHECK(judged[0] == BulkWatch::Judged{a, Action::probe});
        if (second > 11) CHECK(judged[1] == BulkWatch::Judged{b, Action::cut_off});
    }
}

TEST_CASE("silence counts while transfers wait only", "[connections][P13]") {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    for (int second = 1; second <= 60; ++second) {
        const bool waits = second % 4 != 0;
        for (const auto& judged : watch.look(waits ? only_a : std::vector<BulkWatch::Waiting>{},
                                             Time{std::chrono::seconds(second)}))
            CHECK(judged.action == Action::probe);
    }
}

TEST_CASE("a process that did not run starts all silences again", "[connections][P13]") {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    for (int second = 1; second <= 4; ++second) watch.look(only_a, Time{std::chrono::seconds(second)});
    CHECK(watch.look(only_a, Time{100s})[0].action == Action::probe);
    CHECK(watch.look(only_a, Time{104s})[0].action == Action::probe);
}

TEST_CASE("TCP that answers and does not acknowledge what was written is stuck", "[connections][P13][B8]") {
    CHECK(first_action({.written = 1 << 20}) == std::pair(6, Action::stuck));
    CHECK(first_action({.written = 1 << 20, .acknowledges = 12'000}) == std::pair(6, Action::stuck));
    CHECK(first_action({.written = 1, .writes = 100'000}) == std::pair(6, Action::stuck));
}

TEST_CASE("TCP that owes nothing, or moves it, is not stuck", "[connections][P13][B8]") {
    CHECK(first_action({}).first == 0);  // a late rank
    CHECK(first_action({.written = 1 << 20, .acknowledged = 1 << 20}).first == 0);
    CHECK(first_action({.written = 3 << 20, .acknowledges = 40'000}).first == 0);
    CHECK(first_action({.written = 1 << 20, .receives = 40'000}).first == 0);
    CHECK(first_action({.written = 1000, .writes = 1000, .acknowledges = 1000}).first == 0);
}

TEST_CASE("a mark is of one connection; a process that did not run starts it again", "[connections][P13]") {
    BulkWatch watch(config);
    watch.set_waiting(true, Time{0s});
    const auto look = [&](uint64_t connection, Duration at) {
        watch.received(a);
        return watch.look({{a, Moved{ConnectionId(connection), {1 << 20, 0}, 0}}}, Time{at})[0].action;
    };
    for (int second = 1; second <= 20; ++second)
        CHECK(look(static_cast<uint64_t>(second / 5), std::chrono::seconds(second)) == Action::probe);
    CHECK(look(4, 24s) == Action::probe);
    CHECK(look(4, 25s) == Action::probe);
}

TEST_CASE("a connection that ended while nothing moved was stuck", "[connections][P13][B8]") {
    BulkWatch watch(config);
    const Moved none{ConnectionId(1), {}, 0}, owed{ConnectionId(1), {1 << 20, 0}, 0};
    CHECK_FALSE(watch.ended_stuck(a, none, Time{9s}));
    watch.set_waiting(true, Time{0s});
    watch.look({{a, none}}, Time{1s});
    CHECK_FALSE(watch.ended_stuck(a, none, Time{2s}));
    CHECK(watch.ended_stuck(a, none, Time{3s}));
    watch.received(a);
    CHECK_FALSE(watch.ended_stuck(a, none, Time{3s}));  // its rank is late
    for (int second = 2; second <= 4; ++second) {
        watch.received(a);
        watch.look({{a, owed}}, Time{std::chrono::seconds(second)});
        watch.received(a);
    }
    CHECK(watch.ended_stuck(a, owed, Time{4s}));
    CHECK_FALSE(watch.ended_stuck(a, {ConnectionId(1), {1 << 20, 1 << 20}, 0}, Time{4s}));
}

}  // namespace nexar::connections
