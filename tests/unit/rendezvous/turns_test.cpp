// What is due at once in a leader's directory: nodes and users in turns, whatever number of attempts one has.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <string>
#include <vector>

#include "cluster.hpp"
#include "rendezvous/due_turns.hpp"

namespace nexar::rendezvous {
namespace {

constexpr uint64_t many = 1000;

// A leader, and nodes whose opens make groups of one.
struct Leader {
    Leader() : machine(config()) {
        for (const unsigned n : {1u, 2u}) machine.on_peer_up(node_id(n), {}, now);
    }
    Config config() {
        Config out = config_of(node_id(0));
        out.log_room = [this](const NodeId&) { return room; };
        return out;
    }
    std::string open(unsigned node, uint64_t user) {  // the name of its group
        const std::string name = "group " + std::to_string(++number);
        wire::GroupOpen open{{node_id(node), number}, key_of(name), name, 1, 0, 7, {}};
        open.opener_mark = user;
        now += Duration(1);
        machine.on_message(node_id(node), open, now);
        return name;
    }
    // The names of the groups that were prepared since the last call; their attempts are remembered.
    std::vector<std::string> prepared() {
        std::vector<std::string> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* prepare = std::get_if<wire::GroupPrepare>(&send->message)) {
                    names[prepare->group] = prepare->name;
                    out.push_back(prepare->name);
                }
        return out;
    }
    // The names of the groups whose attempts have ended since the last call.
    std::vector<std::string> ended() {
        std::vector<std::string> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* refused = std::get_if<wire::GroupRefused>(&send->message))
                    out.push_back(names.at(refused->group));
        return out;
    }
    void turn() {
        machine.on_time(now);
        machine.check_invariants();
    }
    LogRoom room;
    Time now{ms(1)};
    uint64_t number = 0;
    std::map<GroupId, std::string> names;
    Rendezvous machine;
};

bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
}

constexpr size_t at_once_max = 100;

}  // namespace

TEST_CASE("attempts that end or begin together do so in turns of nodes and users", "[rendezvous][R33][H17]") {
    Leader leader;
    const bool ends = GENERATE(true, false), one_user = GENERATE(true, false);
    if (!ends) leader.room.prepares = 0;
    for (uint64_t i = 0; i < many; ++i) leader.open(1, one_user ? 1 : 100 + i);
    const std::string other_user = leader.open(1, 2), other_node = leader.open(2, 1);
    REQUIRE(leader.prepared().size() == (ends ? many + 2 : 0));
    leader.room = {};
    leader.now += ms(5000);
    const auto names = [&] {
        leader.turn();
        return ends ? leader.ended() : leader.prepared();
    };
    const auto first = names();
    CHECK(first.size() < at_once_max);
    CHECK(has(first, other_node));
    if (one_user) CHECK(has(first, other_user));
    size_t all = first.size();
    for (size_t turns = 0; turns < many && all < many + 2; ++turns) all += names().size();
    CHECK(all == many + 2);
}

TEST_CASE("what is due is taken from nodes and users in turns, and of one user in order",
          "[rendezvous][R33]") {
    DueTurns<int> due;
    const NodeId a = node_id(1), b = node_id(2);
    const auto of = [](const NodeId& way, const NodeId& node, uint64_t user) {
        return TurnOf{way, {node, user}};
    };
    const auto take = [&](Time now) {
        std::vector<int> out;
        while (const auto id = due.take(now)) out.push_back(*id);
        return out;
    };
    CHECK(due.next() == never);
    for (const int n : {4, 3, 2, 1}) due.add(of(a, a, 1), Time(ms(n)), n);
    due.add(of(a, a, 2), Time(ms(5)), 20);
    due.add(of(a, b, 1), Time(ms(5)), 30);  // of another node, by the same way
    for (const int n : {6, 7, 8}) due.add(of(b, b, 1), Time(ms(n)), n * 10);
    due.add(of(b, b, 1), Time(ms(50)), 500);
    due.add(of(b, b, 1), Time(ms(1)), 5);
    CHECK(due.contains(of(b, b, 1), Time(ms(1)), 5));
    due.remove(of(b, b, 1), Time(ms(1)), 5);
    due.remove(of(b, b, 9), Time(ms(1)), 5);
    CHECK_FALSE(due.contains(of(b, b, 1), Time(ms(1)), 5));
    CHECK(due.size() == 10);
    CHECK(due.next() == Time(ms(1)));
    CHECK(take(Time{}).empty());
    CHECK(take(Time(ms(10))) == std::vector{1, 60, 20, 70, 30, 80, 2, 3, 4});
    CHECK(due.next() == Time(ms(50)));
    CHECK(take(Time(ms(50))) == std::vector{500});
    CHECK(due.size() == 0);
    CHECK(due.next() == never);
}

TEST_CASE("what was due before the last turn comes before who had it", "[rendezvous][R33]") {
    DueTurns<int> due;
    const TurnOf a{node_id(1), {node_id(1), 1}}, b{node_id(2), {node_id(2), 1}};
    for (const int n : {1, 2, 3}) due.add(a, Time(ms(1)), n);
    CHECK(due.take(Time(ms(10))) == 1);
    due.add(b, Time(ms(11)), 10);
    CHECK(due.take(Time(ms(12))) == 2);
    CHECK(due.take(Time(ms(12))) == 10);
    CHECK(due.take(Time(ms(12))) == 3);
}

}  // namespace nexar::rendezvous
