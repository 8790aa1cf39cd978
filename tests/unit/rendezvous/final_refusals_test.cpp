// LINK_LOST ends an open whichever way it comes: from who led the open before, through a node whose leader
// has changed, or again from the leader that has decided it.
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <vector>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

const Error link_lost{Errc::link_lost, "nodes a and b do not reach each other", 0, -1, {}};

template <class M>
std::vector<std::pair<NodeId, M>> sent(Rendezvous& machine, size_t* failed = nullptr) {
    std::vector<std::pair<NodeId, M>> out;
    while (const auto action = machine.poll_action()) {
        if (failed != nullptr) *failed += std::holds_alternative<Failed>(*action);
        if (const auto* send = std::get_if<Send>(&*action))
            if (const auto* m = std::get_if<M>(&send->message)) out.emplace_back(send->to, *m);
    }
    machine.check_invariants();
    return out;
}

const NodeId lowest = node_id(0), former = node_id(2), self = node_id(3), unrelated = node_id(4);

wire::GroupOpen open_of(const NodeId& node) {
    wire::GroupOpen out{{node, 7}, key_of("g"), "g", 2, -1, 7, {}, 1};
    out.nonce[0] = 9;
    return out;
}

}  // namespace

TEST_CASE("an open ends with the LINK_LOST of a node that led it before", "[rendezvous][R27]") {
    Rendezvous machine(config_of(self));
    for (const NodeId& node : {former, unrelated}) machine.on_peer_up(node, {}, Time{});
    const auto open = machine.open({SessionId{1}, key_of("g"), false, "g", 2, 0, 9, ms(60'000)}, Time{});
    REQUIRE(open);
    machine.on_peer_up(lowest, {}, Time(ms(1)));
    size_t failed = 0;
    sent<wire::GroupOpen>(machine, &failed);
    const auto refuse = [&](const NodeId& from, const Error& error) {
        machine.on_message(from, wire::GroupRefused{*open, {}, error}, Time(ms(2)));
        return sent<wire::GroupWithdraw>(machine, &failed);
    };
    refuse(unrelated, link_lost);  // never led it
    refuse(former, {Errc::table_full, "full", -1, -1, {}});
    refuse(former, {Errc::rank_clash, "taken", -1, -1, {}});
    CHECK(failed == 0);
    const auto withdrawn = refuse(former, link_lost);
    CHECK(failed == 1);
    REQUIRE(withdrawn.size() == 1);
    CHECK(withdrawn[0].first == lowest);
}

TEST_CASE("a node passes on the LINK_LOST of a leader that it passed the open on to before",
          "[rendezvous][R27]") {
    Rendezvous machine(config_of(self));
    const NodeId origin = node_id(8);
    for (const NodeId& node : {former, unrelated, origin}) machine.on_peer_up(node, {}, Time{});
    machine.on_message(origin, open_of(origin), Time{});
    machine.on_peer_up(lowest, {}, Time(ms(1)));
    sent<wire::GroupOpen>(machine);
    const wire::RequestId id = open_of(origin).id;
    machine.on_message(unrelated, wire::GroupRefused{id, {}, link_lost}, Time(ms(2)));
    CHECK(sent<wire::GroupRefused>(machine).empty());
    machine.on_message(former, wire::GroupRefused{id, {}, link_lost}, Time(ms(2)));
    const auto refused = sent<wire::GroupRefused>(machine);
    REQUIRE(refused.size() == 1);
    CHECK(refused[0].first == origin);
}

TEST_CASE("a leader that is no member and does not reach one does not end the group", "[rendezvous][R28]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Cluster cluster(4, seed, false);
        for (const auto& [a, b] : {std::pair(0u, 1u), {0u, 2u}, {1u, 2u}, {1u, 3u}, {2u, 3u}})
            cluster.link(a, b);
        for (const unsigned node : {2u, 3u}) cluster.open(node, "train", 2, node - 2, ms(20'000));
        cluster.run(ms(5000));
        for (const auto& opener : cluster.openers()) REQUIRE_FALSE(opener.answered_at_all());
        const bool heals = seed % 2 == 0;  // or the leader dies, and the members find another one
        if (heals)
            cluster.link(0, 3);
        else
            cluster.kill(0);
        cluster.run(ms(5000));
        for (const auto& opener : cluster.openers()) CHECK(opener.group);
    }
}

TEST_CASE("a leader repeats LINK_LOST to an open that is listed again", "[rendezvous][R27]") {
    Rendezvous machine(config_of(lowest));
    machine.on_peer_up(former, {}, Time{});
    machine.on_message(former, open_of(self), Time(ms(1)));  // passed on: not connected
    REQUIRE(machine.open({SessionId{1}, key_of("g"), false, "g", 2, -1, 9, ms(60'000)}, Time(ms(1))));
    sent<wire::GroupPrepare>(machine);
    machine.on_time(machine.wake_at());
    machine.on_time(machine.wake_at());
    const auto first = sent<wire::GroupRefused>(machine);
    REQUIRE(first.size() == 1);
    CHECK(first[0].second.error.code == Errc::link_lost);
    machine.on_peer_up(self, {}, Time(ms(3000)));
    wire::GroupOpen again = open_of(self);
    SECTION("by its node") {
        machine.on_message(self, again, Time(ms(3001)));
        const auto refused = sent<wire::GroupRefused>(machine);
        REQUIRE(refused.size() == 1);
        CHECK(refused[0].first == self);
        CHECK(refused[0].second.error.code == Errc::link_lost);
    }
    SECTION("another one, under its number") {
        again.nonce[0] = 1;
        machine.on_message(self, again, Time(ms(3001)));
        CHECK(sent<wire::GroupRefused>(machine).empty());
    }
}

TEST_CASE("LINK_LOST goes to each open of the attempt, for its reservation may have ended",
          "[rendezvous][R27]") {
    Rendezvous machine(config_of(lowest));
    for (const NodeId& node : {former, unrelated}) machine.on_peer_up(node, {}, Time{});
    wire::GroupOpen reached = open_of(unrelated), unreached = open_of(self);
    for (wire::GroupOpen* open : {&reached, &unreached}) open->size = 3;
    machine.on_message(former, unreached, Time(ms(1)));  // passed on: not connected
    machine.on_message(unrelated, reached, Time(ms(1)));
    REQUIRE(machine.open({SessionId{1}, key_of("g"), false, "g", 3, -1, 9, ms(60'000)}, Time(ms(1))));
    REQUIRE(sent<wire::GroupPrepare>(machine).size() == 1);
    machine.on_message(unrelated, reached, Time(ms(2)));  // its reservation has ended: listed again
    machine.on_time(machine.wake_at());
    machine.on_time(machine.wake_at());
    std::map<NodeId, wire::GroupRefused> opens;
    for (const auto& [to, refused] : sent<wire::GroupRefused>(machine))
        if (refused.id.number != 0) opens[to] = refused;
    REQUIRE(opens.size() == 2);
    CHECK(opens[former].id == unreached.id);
    CHECK(opens[unrelated].id == reached.id);
    CHECK(opens[unrelated].error.code == Errc::link_lost);
    machine.on_message(unrelated, reached, Time(ms(3000)));
    CHECK(sent<wire::GroupRefused>(machine).size() == 1);
}

TEST_CASE("a member that has left the attempt gets its LINK_LOST as the others do", "[rendezvous][R27]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed, false);
        for (const unsigned node : {0u, 2u}) cluster.link(1, node);
        for (const unsigned node : {0u, 1u, 2u}) cluster.open(node, "train", 3, node, ms(30'000));
        cluster.run(ms(200));
        cluster.cut(1, 0);  // it asks node 2, which has not seen the attempt
        cluster.run(ms(100));
        cluster.link(0, 1);
        cluster.run(ms(5000));
        for (const auto& opener : cluster.openers()) {
            CAPTURE(opener.node);
            REQUIRE(opener.failed);
            CHECK(opener.failed->code == Errc::link_lost);
        }
    }
}

}  // namespace nexar::rendezvous
