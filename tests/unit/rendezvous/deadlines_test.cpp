// Deadlines of opens and reservations that fall together: a few in a turn of the loop, users in turns, and
// each error is as right as that of one open alone.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <string>
#include <vector>

#include "member.hpp"

namespace nexar::rendezvous {
namespace {

constexpr Time due(ms(1000));
constexpr uint64_t greedy = 1, neighbour = 2;

// A node with opens that all end at `due`.
struct Node {
    explicit Node(bool leads) : machine(config_of(self)) {
        if (!leads) machine.on_peer_up(leader, {}, Time{});
    }
    wire::RequestId open(uint64_t user, const std::string& name, uint32_t size = 2, int64_t rank = 0,
                         Duration timeout = ms(1000), bool local = false) {
        const auto request = machine.open({SessionId{++opens},
                                           key_of(name),
                                           local,
                                           name,
                                           size,
                                           rank,
                                           static_cast<uint32_t>(opens),
                                           timeout,
                                           {},
                                           {},
                                           {},
                                           user},
                                          now);
        REQUIRE(request);
        return *request;
    }
    // What one turn of the loop has ended, in order.
    std::vector<Failed> turn(Time time) {
        now = time;
        machine.on_time(time);
        return drain();
    }
    std::vector<Failed> drain() {
        std::vector<Failed> out;
        while (auto action = machine.poll_action()) {
            if (auto* failed = std::get_if<Failed>(&*action)) out.push_back(std::move(*failed));
            if (auto* send = std::get_if<Send>(&*action))
                if (const auto* asks = std::get_if<wire::GroupStatusRequest>(&send->message))
                    asked.push_back(asks->id);
        }
        return out;
    }
    // All that is due at `time`, turn by turn.
    std::vector<Failed> end_due(Time time) {
        std::vector<Failed> out;
        while (machine.wake_at() <= time) {
            const auto some = turn(time);
            REQUIRE(some.size() <= at_once);
            out.insert(out.end(), some.begin(), some.end());
        }
        return out;
    }
    const size_t at_once = Config{}.due_at_once_max;
    Rendezvous machine;
    Time now{};
    uint64_t opens = 0;
    std::vector<wire::RequestId> asked;
};

bool has(const std::vector<Failed>& failed, const wire::RequestId& request) {
    return std::ranges::find(failed, request, &Failed::request) != failed.end();
}

}  // namespace

TEST_CASE("opens that expire together end a few in a turn, in order, and the rest is due at once",
          "[rendezvous][N16]") {
    constexpr size_t many = 3000;
    const bool local = GENERATE(true, false);
    Node node(true);
    std::vector<wire::RequestId> requests;
    for (size_t i = 0; i < many; ++i)
        requests.push_back(node.open(greedy, "group " + std::to_string(i), 2, 0, ms(1000), local));
    node.drain();
    const uint64_t before = node.machine.visited();
    CHECK(node.turn(due).size() <= node.at_once);
    CHECK(node.machine.visited() - before < 10 * node.at_once);
    CHECK(node.machine.wake_at() <= due);
    auto failed = node.end_due(due);
    CHECK(failed.size() == many - node.at_once);
    CHECK(std::ranges::is_sorted(failed, {}, &Failed::request));
    CHECK(node.machine.pending() == 0);
    CHECK(node.machine.wake_at() == never);
    node.machine.check_invariants();
}

TEST_CASE("a user's open expires with the first of another user's, however many these are",
          "[rendezvous][N16]") {
    const bool leads = GENERATE(true, false);
    Node node(leads);
    for (size_t i = 0; i < 3000; ++i) node.open(greedy, "group " + std::to_string(i));
    const auto one = node.open(neighbour, "mine");
    node.drain();
    if (leads) {
        CHECK(has(node.turn(due), one));
    } else {
        node.turn(due);
        CHECK(std::ranges::find(node.asked, one) != node.asked.end());
        node.machine.on_message(leader, wire::GroupStatus{one, 2, {}, 0}, due);
        // The greedy one's further questions are due as well.
        CHECK(has(node.turn(due), one));
    }
    node.machine.check_invariants();
}

TEST_CASE("opens of one key that expire together have the same report, whatever turns they take",
          "[rendezvous][R11][N16]") {
    constexpr uint32_t many = 3000;
    const bool leads = GENERATE(true, false);
    Node node(leads);
    std::vector<wire::RequestId> requests;
    for (uint32_t rank = 0; rank < many; ++rank)
        requests.push_back(node.open(1 + rank % 3, "train", 2 * many, rank));
    node.drain();
    std::vector<Failed> failed;
    if (leads) {
        failed = node.end_due(due);
    } else {
        CHECK(node.turn(due).empty());
        REQUIRE(node.asked.size() == 1);
        // The answer comes while most have not asked yet, whose time is over too.
        wire::GroupStatus status{node.asked[0], 2 * many, {}, 0};
        for (uint32_t rank = 0; rank < many; ++rank)
            status.present.push_back({requests[rank], self, rank, rank + 1, {}, 0, {}});
        node.machine.on_message(leader, status, due + ms(1));
        failed = node.end_due(due + ms(1));
        CHECK(node.asked.size() == 1);
    }
    std::set<wire::RequestId> all;
    for (const Failed& each : failed) {
        all.insert(each.request);
        CHECK(each.error.code == Errc::group_incomplete);
        CHECK(each.error.text.contains("missing: rank 3000, rank 3001"));
        CHECK(each.error.text.contains("3000 came: rank 0 (pid 1 "));
        CHECK(each.error.rank == many);
    }
    CHECK(all.size() == many);
    CHECK(node.machine.pending() == 0);
    node.machine.check_invariants();
}

TEST_CASE("an open that comes after a report has one of its own", "[rendezvous][R11]") {
    const bool leads = GENERATE(true, false);
    Node node(leads);
    const auto answer = [&](const wire::RequestId& request, uint32_t came) {
        wire::GroupStatus status{request, 4, {}, 0};
        for (uint32_t rank = 0; rank < came; ++rank)
            status.present.push_back({{self, 1 + rank}, self, rank, rank + 1, {}, 0, {}});
        node.machine.on_message(leader, status, node.now);
    };
    const auto first = node.open(greedy, "train", 4, 0);
    node.open(greedy, "train", 4, 1, ms(9000));  // waits all the time
    auto failed = node.end_due(due);
    if (!leads) {
        answer(first, 2);
        failed = node.end_due(due);
    }
    REQUIRE(has(failed, first));
    CHECK(failed[0].error.text.contains("2 came: rank 0"));

    node.now = due + Duration(1000);
    const auto second = node.open(greedy, "train", 4, 2, Duration(1000));
    failed = node.end_due(due + Duration(2000));
    if (!leads) {
        REQUIRE(node.asked.back() == second);
        answer(second, 3);
        failed = node.end_due(node.now);
    }
    REQUIRE(has(failed, second));
    CHECK(failed[0].error.text.contains(leads ? "2 came: rank 1" : "3 came: rank 0"));
    CHECK(failed[0].error.text.contains("1 gave up before: rank 0") == leads);
    node.machine.check_invariants();
}

TEST_CASE("an open that expires soon after others of its key needs no other report", "[rendezvous][R11]") {
    Node node(false);
    constexpr uint32_t many = 1000;
    for (uint32_t rank = 0; rank < many; ++rank)
        node.open(greedy, "train", 2 * many, rank, ms(1000) + Duration(rank));  // a nanosecond apart
    node.drain();
    node.end_due(due);
    REQUIRE(node.asked.size() == 1);
    wire::GroupStatus status{node.asked[0], 2 * many, {}, 0};
    for (uint32_t rank = 0; rank < many; ++rank)
        status.present.push_back({{self, rank}, self, rank, rank + 1, {}, 0, {}});
    node.machine.on_message(leader, status, due);
    size_t failed = node.end_due(due).size();
    for (uint32_t n = 1; n < many; ++n) failed += node.end_due(due + Duration(n)).size();
    CHECK(failed == many);
    CHECK(node.asked.size() == 1);
    node.machine.check_invariants();
}

TEST_CASE("opens that get no report end in turns as well", "[rendezvous][N16]") {
    Node node(false);
    for (uint32_t rank = 0; rank < 500; ++rank) node.open(greedy, "train", 1000, rank);
    const auto one = node.open(neighbour, "mine");
    node.drain();
    CHECK(node.end_due(due).empty());
    const Time over = due + Config{}.status_wait;
    CHECK(has(node.turn(over), one));
    CHECK(node.end_due(over).size() >= 500 - node.at_once);
    CHECK(node.machine.pending() == 0);
}

TEST_CASE("reservations without a decision are looked at in turns", "[rendezvous][N16]") {
    constexpr uint64_t many = 500;
    Node node(false);
    node.machine.on_peer_up(other, {}, Time{});
    const auto prepare = [&](uint64_t number, uint64_t user) {
        const std::string name = "group " + std::to_string(number);
        const auto request = node.machine.open(
            {SessionId{number}, key_of(name), false, name, 2, 0, 9, ms(60'000), {}, {}, {}, user}, Time{});
        wire::Nonce nonce{};
        while (const auto action = node.machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* open = std::get_if<wire::GroupOpen>(&send->message)) nonce = open->nonce;
        wire::GroupPrepare out;
        out.group = {leader.prefix(), 2, number};
        out.key = key_of(name);
        out.name = name;
        out.members = {{*request, self, 0, 9, {}, 0, nonce}, {{other, number}, other, 1, 7, {}, 0, {}}};
        node.machine.on_message(leader, out, Time{});
        REQUIRE(node.machine.awaits(out.group));
        return out.group;
    };
    for (uint64_t number = 1; number <= many; ++number) prepare(number, greedy);
    const GroupId mine = prepare(many + 1, neighbour);
    node.drain();

    const auto asked_about = [&] {
        std::vector<GroupId> out;
        node.machine.on_time(Time{} + Config{}.decision_timeout);
        while (const auto action = node.machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* query = std::get_if<wire::GroupQuery>(&send->message))
                    if (send->to == other) out.push_back(query->group);
        return out;
    };
    auto all = asked_about();
    CHECK(all.size() <= node.at_once);
    CHECK(std::ranges::find(all, mine) != all.end());
    while (node.machine.wake_at() <= Time{} + Config{}.decision_timeout) {
        const auto some = asked_about();
        REQUIRE(some.size() <= node.at_once);
        all.insert(all.end(), some.begin(), some.end());
    }
    CHECK(all.size() == many + 1);
    node.machine.check_invariants();
}

}  // namespace nexar::rendezvous
