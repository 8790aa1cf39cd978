// How many opens a node keeps for others: a share for each node that sends them.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <vector>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

constexpr size_t share = 50;

// Node `self` with others connected; each may have `share` opens kept here.
struct Keeper {
    explicit Keeper(unsigned self, size_t all = 4 * share) : machine(config(self, all)) {
        for (unsigned n = 0; n < 10; ++n)
            if (n != self) machine.on_peer_up(node_id(n), {}, Time{});
        read();
    }
    static Config config(unsigned self, size_t all) {
        Config out = config_of(node_id(self));
        out.node_opens_max = share;
        out.directory_max = all;
        return out;
    }
    static wire::GroupOpen open_of(unsigned node, uint64_t number) {
        const std::string name = std::to_string(node) + "-" + std::to_string(number);
        return {{node_id(node), number}, key_of(name), name, 2, -1, 7, {}, 1};
    }
    void list(unsigned via, const wire::GroupOpen& open) {
        machine.on_message(node_id(via), open, Time(ms(1)));
        machine.check_invariants();
        read();
    }
    void read() {
        while (const auto action = machine.poll_action()) {
            opened += std::holds_alternative<Opened>(*action);
            const auto* send = std::get_if<Send>(&*action);
            if (send == nullptr) continue;
            passed_on += std::holds_alternative<wire::GroupOpen>(send->message);
            if (const auto* no = std::get_if<wire::GroupRefused>(&send->message)) {
                refused.push_back(*no);
                refused_to.push_back(send->to);
            }
        }
    }

    Rendezvous machine;
    std::vector<wire::GroupRefused> refused;
    std::vector<NodeId> refused_to;
    size_t passed_on = 0, opened = 0;
};

void require_refused(const Keeper& keeper, size_t count, const NodeId& to, const std::string& who) {
    REQUIRE(keeper.refused.size() == count);
    for (const NodeId& node : keeper.refused_to) CHECK(node == to);
    for (const wire::GroupRefused& no : keeper.refused) {
        INFO(no.error.text);
        CHECK(no.error.code == Errc::table_full);
        CHECK(no.error.text.contains(who));
        CHECK(no.error.text.contains(std::to_string(share)));
        CHECK(no.error.text.contains("groups_max"));
    }
}

}  // namespace

TEST_CASE("a node's opens beyond its share are refused, and take no room of another node's",
          "[rendezvous][R25]") {
    Keeper leader(0);
    for (uint64_t n = 1; n <= 3 * share; ++n) leader.list(1, Keeper::open_of(1, n));
    require_refused(leader, 2 * share, node_id(1), node_id(1).short_hex());

    for (uint64_t n = 1; n <= share; ++n) leader.list(2, Keeper::open_of(2, n));
    CHECK(leader.refused.size() == 2 * share);
    // Neither does the leader need it for its own.
    for (uint64_t n = 1; n <= 2 * share; ++n) {
        const std::string name = "own " + std::to_string(n);
        (void)leader.machine.open({SessionId{1}, key_of(name), false, name, 1, 0, 9, ms(60'000)},
                                  Time(ms(2)));
    }
    leader.read();
    CHECK(leader.opened == 2 * share);
}

TEST_CASE("opens that a node passes on have a share of their own", "[rendezvous][R25]") {
    Keeper leader(0);
    for (unsigned origin = 10; origin < 10 + 2 * share; ++origin) leader.list(1, Keeper::open_of(origin, 1));
    require_refused(leader, share, node_id(1), node_id(1).short_hex());
    // That node's own opens do not need it.
    for (uint64_t n = 1; n <= share; ++n) leader.list(1, Keeper::open_of(1, n));
    CHECK(leader.refused.size() == share);
    // The same opens through another node are kept for that one too.
    for (unsigned origin = 10; origin < 10 + share; ++origin) leader.list(2, Keeper::open_of(origin, 1));
    CHECK(leader.refused.size() == share);
    leader.list(2, Keeper::open_of(9, 1));
    CHECK(leader.refused.size() == share + 1);
    // Its ways go with it.
    leader.machine.on_peer_down(node_id(2), {}, Time(ms(2)));
    leader.machine.on_peer_up(node_id(2), {}, Time(ms(3)));
    leader.list(2, Keeper::open_of(9, 1));
    CHECK(leader.refused.size() == share + 1);
}

TEST_CASE("one node's opens take a sixteenth of what another one passes on", "[rendezvous][R25]") {
    Keeper leader(0);
    for (uint64_t n = 1; n <= share; ++n) leader.list(1, Keeper::open_of(9, n));
    REQUIRE(leader.refused.size() == share - share / 16);
    CHECK(leader.refused.back().error.text.contains("node " + node_id(9).short_hex() + " through node " +
                                                    node_id(1).short_hex()));
    leader.list(1, Keeper::open_of(8, 1));
    leader.list(1, Keeper::open_of(1, 1));
    leader.list(9, Keeper::open_of(9, share));  // directly
    CHECK(leader.refused.size() == share - share / 16);
}

TEST_CASE("a node passes on as many opens of another one as the leader takes by that way",
          "[rendezvous][R25]") {
    Keeper relay(1);
    for (uint64_t n = 1; n <= share; ++n) relay.list(2, Keeper::open_of(2, n));
    REQUIRE(relay.refused.size() == share - share / 16);
    CHECK(relay.refused.back().error.text.contains("node " + node_id(2).short_hex()));
    relay.list(3, Keeper::open_of(3, 1));
    CHECK(relay.refused.size() == share - share / 16);
    CHECK(relay.passed_on == share / 16 + 1);
}

TEST_CASE("a leader that finds another one passes on only so many opens of a node", "[rendezvous][R25]") {
    Rendezvous machine(Keeper::config(1, 4 * share));
    machine.on_peer_up(node_id(2), {}, Time{});
    for (uint64_t n = 1; n <= share; ++n) machine.on_message(node_id(2), Keeper::open_of(2, n), Time(ms(1)));
    while (machine.poll_action()) continue;
    machine.on_peer_up(node_id(0), {}, Time(ms(2)));
    machine.check_invariants();
    size_t passed_on = 0, refused = 0;
    while (const auto action = machine.poll_action())
        if (const auto* send = std::get_if<Send>(&*action)) {
            passed_on += std::holds_alternative<wire::GroupOpen>(send->message);
            refused += std::holds_alternative<wire::GroupRefused>(send->message);
        }
    CHECK(passed_on == share / 16);
    CHECK(refused == share - share / 16);
}

TEST_CASE("all nodes' opens together have a limit too", "[rendezvous][R14][R25]") {
    Keeper leader(0, share);
    for (uint64_t n = 1; n < share; ++n) leader.list(1, Keeper::open_of(1, n));
    leader.list(2, Keeper::open_of(2, 1));
    leader.list(2, Keeper::open_of(2, 2));
    require_refused(leader, 1, node_id(2), "all nodes of the cluster");
}

TEST_CASE("an open that ends makes room, and what was refused for room may be opened again",
          "[rendezvous][R25]") {
    Keeper leader(0);
    for (uint64_t n = 1; n <= share + 1; ++n) leader.list(1, Keeper::open_of(1, n));
    CHECK(leader.refused.size() == 1);
    SECTION("withdrawn") {
        const wire::GroupOpen first = Keeper::open_of(1, 1);
        leader.machine.on_message(node_id(1), wire::GroupWithdraw{first.id, first.key, false, false},
                                  Time(ms(2)));
    }
    SECTION("in a group") {
        wire::GroupOpen second = Keeper::open_of(1, 1);
        second.id = {node_id(2), 1};
        leader.list(2, second);
        const GroupId group{node_id(0).prefix(), 0, 1};
        for (const unsigned n : {1u, 2u})
            leader.machine.on_message(node_id(n), wire::GroupPrepared{group, {}, {}}, Time(ms(2)));
    }
    SECTION("with its node") {
        leader.machine.on_peer_down(node_id(1), {}, Time(ms(2)));
        leader.machine.on_peer_up(node_id(1), {}, Time(ms(3)));
    }
    leader.read();
    leader.list(1, Keeper::open_of(1, share + 1));
    CHECK(leader.refused.size() == 1);
}

TEST_CASE("an open that its leader refuses for room ends with that error, and is listed nowhere again",
          "[rendezvous][R25]") {
    Rendezvous machine(config_of(node_id(3)));
    machine.on_peer_up(node_id(1), {}, Time{});
    const auto request =
        machine.open({SessionId{1}, key_of("g"), false, "g", 2, 0, 9, ms(60'000)}, Time(ms(1)));
    REQUIRE(request);
    while (machine.poll_action()) continue;
    machine.on_message(node_id(1), wire::GroupRefused{*request, {}, {Errc::table_full, "full", -1, -1, {}}},
                       Time(ms(2)));
    const auto action = machine.poll_action();
    REQUIRE(action);
    CHECK(std::get<Failed>(*action).error.code == Errc::table_full);
    CHECK(machine.pending() == 0);
    machine.on_peer_up(node_id(0), {}, Time(ms(3)));  // another leader
    CHECK_FALSE(machine.poll_action());
    CHECK(machine.wake_at() == never);
}

}  // namespace nexar::rendezvous
