// The roster alone: quotas, expiry, and what is remembered of the forgotten [P6] [P7].
#include "connections/roster.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "nodes.hpp"

namespace nexar::connections {
namespace {

using namespace std::chrono_literals;

const NodeId low = node_id(1), high = node_id(9);

wire::NodeRecord record(unsigned n, const std::string& name = "h") {
    return {node_id(n), name, {"a:1"}};
}
RosterConfig small() {
    RosterConfig out;
    out.nodes_max = 16;
    return out;
}
std::vector<NodeId> forgotten(Roster& roster, Time now) {
    std::vector<NodeId> out;
    while (const auto node = roster.poll_forgotten(now)) out.push_back(*node);
    roster.check_invariants();
    return out;
}

TEST_CASE("a sender's gossip fills at most a quarter of the roster", "[connections][P6][H7]") {
    Roster roster(small());
    for (unsigned n = 20; n < 60; ++n) roster.learn(record(n), low, at_ms(0));
    CHECK(roster.size() == 4);
    for (unsigned n = 60; n < 100; ++n) roster.learn(record(n), high, at_ms(0));
    CHECK(roster.size() == 8);
    // Those that are met do not count.
    roster.set_standing(node_id(20), Roster::Standing::met, at_ms(1));
    CHECK(roster.learn(record(110), low, at_ms(1)) == Roster::Learnt::added);
    CHECK(roster.learn(record(111), low, at_ms(1)) == Roster::Learnt::nothing);
    roster.check_invariants();
}

TEST_CASE("a node that comes itself takes the place of one that was never met or has left, of no other",
          "[connections][P6][H7]") {
    Roster roster(small());
    for (unsigned n = 20; n < 36; ++n) {
        CHECK(roster.learn(record(n), node_id(n), at_ms(n)) == Roster::Learnt::added);
        if (n > 21) roster.set_standing(node_id(n), Roster::Standing::met, at_ms(n));
    }
    CHECK(roster.size() == 16);
    CHECK(roster.learn(record(50), low, at_ms(100)) == Roster::Learnt::nothing);  // gossip takes no place
    roster.set_standing(node_id(21), Roster::Standing::departed, at_ms(90));
    for (unsigned n = 50; n < 52; ++n) {
        CHECK(roster.has_room_for(node_id(n)));
        CHECK(roster.learn(record(n), node_id(n), at_ms(100)) == Roster::Learnt::added);
        CHECK(forgotten(roster, at_ms(100)) == std::vector{node_id(n - 30)});
        roster.set_standing(node_id(n), Roster::Standing::met, at_ms(100));
    }
    roster.set_standing(node_id(30), Roster::Standing::lost, at_ms(200));  // it may come back
    CHECK_FALSE(roster.has_room_for(node_id(60)));
    CHECK(roster.has_room_for(node_id(30)));
    CHECK(roster.learn(record(60), node_id(60), at_ms(200)) == Roster::Learnt::nothing);
    CHECK(roster.find(node_id(60)) == nullptr);
}

TEST_CASE("entries expire by how they stand, and a connected one never does", "[connections][P7][H7]") {
    Roster roster(small());
    for (unsigned n = 20; n < 24; ++n) roster.learn(record(n), low, at_ms(0));
    roster.set_standing(node_id(21), Roster::Standing::departed, at_ms(1000));
    roster.set_standing(node_id(22), Roster::Standing::lost, at_ms(1000));
    roster.set_standing(node_id(23), Roster::Standing::met, at_ms(1000));
    CHECK(roster.wake_at() == at_ms(0) + 1h);
    CHECK(forgotten(roster, at_ms(-1) + 1h).empty());
    CHECK(forgotten(roster, at_ms(0) + 1h) == std::vector{node_id(20)});
    CHECK(forgotten(roster, at_ms(1000) + 1h) == std::vector{node_id(21)});
    CHECK(forgotten(roster, at_ms(999) + 7 * 24h).empty());
    CHECK(forgotten(roster, at_ms(1000) + 7 * 24h) == std::vector{node_id(22)});
    CHECK(roster.wake_at() == never);
    CHECK(roster.size() == 1);
    CHECK(roster.records()[0].node == node_id(23));
}

TEST_CASE("a forgotten node is learnt from itself at once, from gossip after a day, and its counter stays",
          "[connections][P7]") {
    Roster roster(small());
    const NodeId node = node_id(20);
    roster.learn(record(20), node, at_ms(0));
    roster.set_highest_counter(node, 7);
    roster.set_standing(node, Roster::Standing::departed, at_ms(0));
    CHECK(forgotten(roster, at_ms(0) + 1h).size() == 1);
    CHECK(roster.highest_counter_of(node) == 7);
    CHECK(roster.learn(record(20), low, at_ms(0) + 2h) == Roster::Learnt::nothing);
    const bool by_itself = GENERATE(true, false);
    const Time later = at_ms(0) + (by_itself ? 3h : 25h);
    CHECK(roster.learn(record(20), by_itself ? node : low, later) == Roster::Learnt::added);
    CHECK(roster.highest_counter_of(node) == 7);
    CHECK(roster.highest_counter_of(high) == 0);
    roster.check_invariants();
}

TEST_CASE("the place of a node says how it stands and when it is forgotten", "[connections][P7][U11]") {
    Roster roster{RosterConfig{}};
    const wire::NodeRecord record{node_id(1), "one", {"10.0.0.1:1"}};
    CHECK_FALSE(roster.place_of(record.node));
    REQUIRE(roster.learn(record, record.node, Time{}) == Roster::Learnt::added);
    const auto is = [&](Roster::Standing standing, Time expires) {
        const auto place = roster.place_of(record.node);
        return place && place->standing == standing && place->expires == expires;
    };
    CHECK(is(Roster::Standing::unmet, Time{} + std::chrono::hours(1)));
    roster.set_standing(record.node, Roster::Standing::met, Time{});
    CHECK(is(Roster::Standing::met, never));
    roster.set_standing(record.node, Roster::Standing::lost, Time{});
    CHECK(is(Roster::Standing::lost, Time{} + std::chrono::hours(24 * 7)));
    roster.set_standing(record.node, Roster::Standing::departed, Time{});
    CHECK(is(Roster::Standing::departed, Time{} + std::chrono::hours(1)));
}

TEST_CASE("what is remembered of the forgotten is bounded", "[connections][P7]") {
    Roster roster(small());
    for (unsigned n = 0; n < 200; ++n) {
        const Time now = at_ms(0) + n * 2h;
        roster.learn(record(n), node_id(n), now);
        roster.set_highest_counter(node_id(n), 5);
        forgotten(roster, now + 1h);
    }
    CHECK(roster.size() == 0);
    size_t remembered = 0;
    for (unsigned n = 0; n < 200; ++n) remembered += roster.highest_counter_of(node_id(n)) == 5 ? 1 : 0;
    CHECK(remembered == 16);
}

TEST_CASE("the first gossip about a node counts until the node itself says more", "[connections][P6]") {
    Roster roster(small());
    CHECK(roster.learn(record(20, "rumour"), low, at_ms(0)) == Roster::Learnt::added);
    CHECK(roster.learn(record(20, "other"), high, at_ms(0)) == Roster::Learnt::nothing);
    CHECK(roster.find(node_id(20))->hostname == "rumour");
    CHECK(roster.learn(record(20, "itself"), node_id(20), at_ms(0)) == Roster::Learnt::changed);
    CHECK(roster.learn(record(20, "itself"), node_id(20), at_ms(0)) == Roster::Learnt::nothing);
    CHECK(roster.find(node_id(20))->hostname == "itself");
    CHECK(is_relayed("via:00ff"));
    CHECK_FALSE(is_relayed("[fd00::1]:7654"));
}

}  // namespace
}  // namespace nexar::connections
