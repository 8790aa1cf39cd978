// What many waiting opens cost: an input looks at what it is about, and a moment at what is due then.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

constexpr size_t waiting = 20'000, turns = 1000;

// A machine with very many opens of groups that never fill.
struct Crowd {
    explicit Crowd(const NodeId& leader) : machine(config_of(node_id(3))) {
        if (leader != node_id(3)) machine.on_peer_up(leader, {}, Time{});
        for (size_t i = 0; i < waiting; ++i) open(i, ms(60'000));
        drain();
    }
    wire::RequestId open(size_t i, Duration timeout) {
        const std::string name = "group " + std::to_string(i);
        const auto request =
            machine.open({SessionId{i}, key_of(name), false, name, 2, 0, 9, timeout}, Time(ms(1)));
        REQUIRE(request);
        return *request;
    }
    std::vector<Action> drain() {
        std::vector<Action> out;
        while (auto action = machine.poll_action()) out.push_back(std::move(*action));
        return out;
    }
    Rendezvous machine;
};

}  // namespace

TEST_CASE("turns of the loop do not look at opens that wait", "[rendezvous][R23][H17]") {
    for (const NodeId& leader : {node_id(0), node_id(3)}) {
        Crowd crowd(leader);
        const uint64_t before = crowd.machine.visited();
        for (size_t i = 1; i <= turns; ++i) {
            crowd.machine.on_time(Time(ms(static_cast<int64_t>(i))));
            CHECK(crowd.machine.wake_at() == Time(ms(60'001)));
        }
        CHECK(crowd.machine.visited() == before);
        crowd.machine.check_invariants();
    }
}

TEST_CASE("an open that comes, expires or is withdrawn beside very many others looks at few",
          "[rendezvous][R23][H17]") {
    for (const NodeId& leader : {node_id(0), node_id(3)}) {
        Crowd crowd(leader);
        const uint64_t before = crowd.machine.visited();
        for (size_t i = 0; i < turns; ++i) {
            const auto request = crowd.open(waiting + i, ms(100));
            if (i % 2 == 0) crowd.machine.withdraw(request, Time(ms(2)));
            if (i % 2 == 1) crowd.machine.withdraw_session(SessionId{waiting + i}, Time(ms(2)));
        }
        for (size_t i = 0; i < turns; ++i) crowd.open(waiting + i, ms(100));
        for (const Time now : {Time(ms(101)), Time(ms(500))})
            while (crowd.machine.wake_at() <= now) crowd.machine.on_time(now);
        CHECK(crowd.machine.visited() - before < 20 * turns);
        CHECK(crowd.machine.pending() == waiting);
        crowd.machine.check_invariants();
    }
}

TEST_CASE("opens of other nodes that come and go look at few of those that wait", "[rendezvous][R23][H17]") {
    Rendezvous machine(config_of(node_id(0)));
    machine.on_peer_up(node_id(1), {1, 1}, Time{});
    const auto open_of = [](size_t i) {
        wire::GroupOpen open;
        open.id = {node_id(1), i + 1};
        open.name = "group " + std::to_string(i);
        open.key = key_of(open.name);
        open.size = 2;
        open.incarnation = {1, 1};
        return open;
    };
    for (size_t i = 0; i < waiting; ++i) machine.on_message(node_id(1), open_of(i), Time{});
    for (size_t i = 0; i < turns; ++i) {
        const wire::GroupOpen open = open_of(waiting + i);
        machine.on_message(node_id(1), open, Time{});
        machine.on_message(node_id(1), wire::GroupWithdraw{open.id, open.key, false, false}, Time{});
    }
    CHECK(machine.visited() < 10 * (waiting + turns));
    machine.check_invariants();
}

TEST_CASE("attempts of one key that end look at their own opens, not at all that wait for the key",
          "[rendezvous][R23]") {
    Rendezvous machine(config_of(node_id(0)));
    machine.on_peer_up(node_id(1), {}, Time{});
    for (uint64_t i = 1; i <= waiting; ++i)
        machine.on_message(node_id(1), wire::GroupOpen{{node_id(1), i}, key_of("g"), "g", 2, -1, 7, {}, 1},
                           Time{});
    std::vector<GroupId> attempts;
    while (const auto action = machine.poll_action())
        if (const auto* prepare = std::get_if<wire::GroupPrepare>(&std::get<Send>(*action).message))
            attempts.push_back(prepare->group);
    REQUIRE(attempts.size() == waiting / 2);
    const uint64_t before = machine.visited();
    SECTION("refused") {
        const Error error{Errc::pending, "no", -1, -1, {}};
        for (const GroupId& group : attempts)
            machine.on_message(node_id(1), wire::GroupPrepared{group, error}, Time(ms(1)));
    }
    SECTION("without an answer in time") {
        machine.on_time(Time(ms(3000)));
    }
    SECTION("with their node") {
        machine.on_peer_down(node_id(1), {}, Time(ms(1)));
    }
    CHECK(machine.visited() - before < 10 * waiting);
    machine.check_invariants();
}

TEST_CASE("a node that asks without end who has come is answered some times, another one at once",
          "[rendezvous][R24]") {
    constexpr uint64_t opens = 5000;
    Rendezvous machine(config_of(node_id(0)));
    for (const unsigned n : {1u, 2u}) machine.on_peer_up(node_id(n), {}, Time{});
    for (uint64_t i = 1; i <= opens; ++i)
        machine.on_message(node_id(1), wire::GroupOpen{{node_id(1), i}, key_of("g"), "g", 9000, -1, 7, {}, 1},
                           Time{});
    const auto answers = [&](unsigned node, size_t questions, Time now) {
        size_t out = 0;
        for (size_t i = 0; i < questions; ++i) {
            machine.on_message(node_id(node), wire::GroupStatusRequest{{node_id(node), 1}, key_of("g")}, now);
            while (const auto action = machine.poll_action())
                out += std::holds_alternative<wire::GroupStatus>(std::get<Send>(*action).message);
        }
        return out;
    };
    const size_t some = answers(1, 1000, Time(ms(1)));
    CHECK((some >= 10 && some < 100));
    CHECK(answers(2, 1, Time(ms(1))) == 1);
    CHECK(answers(1, 1, Time(ms(10))) == 0);
    CHECK(answers(1, 1, Time(ms(2000))) == 1);
}

TEST_CASE("the loss of a node looks at its own opens and attempts", "[rendezvous][R23]") {
    Rendezvous machine(config_of(node_id(0)));
    for (const unsigned n : {1u, 2u}) machine.on_peer_up(node_id(n), {}, Time{});
    const auto open = [&](unsigned node, uint64_t number) {
        const std::string name = std::to_string(node) + " " + std::to_string(number);
        machine.on_message(node_id(node),
                           wire::GroupOpen{{node_id(node), number}, key_of(name), name, 2, 0, 7, {}, 1},
                           Time{});
    };
    for (uint64_t i = 1; i <= waiting; ++i) open(1, i);
    open(2, 1);
    const uint64_t before = machine.visited();
    machine.on_peer_down(node_id(2), {}, Time(ms(1)));
    CHECK(machine.visited() - before < 10);
    machine.check_invariants();
}

TEST_CASE("opens of one key that expire together ask the leader once, and again when the one that asked goes",
          "[rendezvous][R11]") {
    Rendezvous machine(config_of(node_id(3)));
    machine.on_peer_up(node_id(0), {}, Time{});
    std::vector<wire::RequestId> requests;
    for (int64_t rank = 0; rank < 50; ++rank)
        requests.push_back(
            *machine.open({SessionId{1}, key_of("train"), false, "train", 64, rank, 9, ms(1000)}, Time{}));
    const auto asked = [&] {
        std::vector<wire::RequestId> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* request = std::get_if<wire::GroupStatusRequest>(&send->message))
                    out.push_back(request->id);
        return out;
    };
    asked();
    const auto end_due = [&](Time now) {
        while (machine.wake_at() <= now) machine.on_time(now);
    };
    end_due(Time(ms(1000)));
    CHECK(asked() == std::vector{requests[0]});
    machine.withdraw(requests[0], Time(ms(1001)));
    CHECK(asked() == std::vector{requests[1]});
    machine.check_invariants();

    wire::GroupStatus status{requests[1], 64, {}, 0};
    for (uint32_t rank = 1; rank < 50; ++rank)
        status.present.push_back({requests[rank], node_id(3), rank, 9, {}, 0, {}});
    machine.on_message(node_id(0), status, Time(ms(1002)));
    end_due(Time(ms(1002)));
    size_t failed = 0;
    while (const auto action = machine.poll_action())
        if (const auto* f = std::get_if<Failed>(&*action)) {
            CHECK(f->error.code == Errc::group_incomplete);
            CHECK(f->error.text.contains("rank 0, rank 50"));
            ++failed;
        }
    CHECK(failed == 49);
    CHECK(machine.pending() == 0);
    machine.check_invariants();
}

namespace {

OpenSpec open_of(uint64_t mark, const std::string& name, const std::string& secret, uint32_t size = 2) {
    OpenSpec spec;
    spec.session = SessionId{mark};
    spec.key = key_of(secret + " " + name);
    spec.name = name;
    spec.size = size;
    spec.timeout = ms(60'000);
    spec.opener_mark = mark;
    return spec;
}

}  // namespace

// The opens of user 1 are groups without end, names with very many keys, or one group with very many ranks.
TEST_CASE("what a question shows is what it looks at, however many opens there are", "[rendezvous][N17]") {
    for (const NodeId& leader : {node_id(0), node_id(3)}) {
        Rendezvous machine(config_of(node_id(3)));
        if (leader != node_id(3)) machine.on_peer_up(leader, {}, Time{});
        const auto open = [&](const OpenSpec& spec) { REQUIRE(machine.open(spec, Time(ms(1)))); };
        for (size_t i = 0; i < waiting; ++i) {
            open(open_of(1, "a " + std::to_string(i), "x"));
            open(open_of(1, "same", std::to_string(i)));
            open(open_of(1, "big", "x", waiting + 1));
        }
        open(open_of(2, "same", "mine"));
        machine.check_invariants();
        const auto looks = [&](const FormingScope& scope, size_t shown, size_t omitted) {
            const uint64_t before = machine.visited();
            const FormingList list = machine.forming(Time(ms(2)), scope);
            CHECK(list.groups.size() == shown);
            CHECK(list.omitted == omitted);
            return machine.visited() - before;
        };

        CHECK(looks({2, ""}, 1, 0) < 10);
        CHECK(looks({2, "same"}, 1, 0) < 10);
        CHECK(looks({2, "big"}, 0, 0) == 0);
        CHECK(looks({1, "", 100}, 100, 2 * waiting + 1 - 100) < 1000);
        CHECK(looks({1, "same", 100}, 100, waiting - 100) < 1000);
        CHECK(looks({1, "big", 100}, 1, 0) < 4000);
        const uint64_t before = machine.visited();
        machine.inquire({2, "same"});
        CHECK(machine.visited() - before < 200);
    }
}

TEST_CASE("each user's groups are asked about, however many another one has", "[rendezvous][N17]") {
    Crowd crowd(node_id(0));
    REQUIRE(crowd.machine.open(open_of(2, "z", "mine"), Time(ms(1))));
    crowd.drain();

    const auto asks = [&] {
        const auto key = key_of("mine z");
        return std::ranges::any_of(crowd.drain(), [&](const Action& action) {
            const auto* send = std::get_if<Send>(&action);
            const auto* request =
                send == nullptr ? nullptr : std::get_if<wire::GroupStatusRequest>(&send->message);
            return request != nullptr && request->key == key;
        });
    };
    SECTION("with the others") {
        crowd.machine.inquire();
        CHECK(asks());
    }
    SECTION("and beside an inquiry in progress, by name") {
        crowd.machine.inquire();
        crowd.drain();
        REQUIRE(crowd.machine.open(open_of(3, "later", "x"), Time(ms(1))));
        crowd.drain();
        crowd.machine.inquire_also({3, "later"});
        CHECK(crowd.machine.poll_action());
        crowd.machine.inquire_also({2, "z"});  // that one has been asked about
        CHECK_FALSE(asks());
    }
}

}  // namespace nexar::rendezvous
