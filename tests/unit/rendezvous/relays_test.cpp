// What a node passes on of another node's opens counts for what came through itself, and for nothing else
// [R17]. An open is kept while one of the ways lasts by which it came.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <set>
#include <vector>

#include "cluster.hpp"

namespace nexar::rendezvous {
namespace {

// A leader and two nodes that pass on the opens of a third one, which is not connected.
struct Relays {
    Relays() : machine(config_of(node_id(0))) {
        for (const NodeId& node : {one, two}) machine.on_peer_up(node, {3, 3}, Time{});
    }
    void say(const NodeId& from, const wire::Message& message) {
        machine.on_message(from, message, Time(ms(1)));
        while (machine.poll_action()) {
        }
    }
    // The processes that wait under the key "g".
    std::vector<uint32_t> present() {
        machine.on_message(one, wire::GroupStatusRequest{{one, 1}, key_of("g")}, Time(ms(2)));
        std::vector<uint32_t> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (const auto* status = std::get_if<wire::GroupStatus>(&send->message))
                    for (const auto& member : status->present) out.push_back(member.pid);
        return out;
    }
    wire::GroupOpen open(uint32_t pid, uint64_t counter = 5) const {
        return {{absent, (counter << 32) + 1}, key_of("g"), "g", 3, 1, pid, {counter, 50}};
    }
    const NodeId one = node_id(1), two = node_id(2), absent = node_id(3);
    Rendezvous machine;
};

}  // namespace

TEST_CASE("what came through one relay is not changed by what another one says of the same open, or node",
          "[rendezvous][H6][R17]") {
    Relays r;
    r.say(r.one, r.open(9));
    SECTION("the same, and withdrawn again") {
        r.say(r.two, r.open(9));
        r.say(r.two, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
    }
    SECTION("withdrawn alone") {
        r.say(r.two, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
    }
    SECTION("another open under its number") {
        wire::GroupOpen other = r.open(9);
        other.rank = 2;
        r.say(r.two, other);
        r.say(r.two, wire::GroupWithdraw{other.id, key_of("g"), false, false});
    }
    SECTION("a later incarnation") {
        r.say(r.two, r.open(8, 6));
    }
    SECTION("the same, and the other relay is lost") {
        r.say(r.two, r.open(9));
        r.machine.on_peer_down(r.two, {3, 3}, Time(ms(1)));
    }
    SECTION("the same, and its own relay is lost: the other one keeps it") {
        r.say(r.two, r.open(9));
        r.machine.on_peer_up(r.one, {4, 4}, Time(ms(1)));
    }
    CHECK(r.present() == std::vector<uint32_t>{9});
}

TEST_CASE("a relay replaces and withdraws what came through itself", "[rendezvous][R15][R17]") {
    Relays r;
    r.say(r.one, r.open(9));
    SECTION("a later incarnation") {
        r.say(r.one, r.open(8, 6));
        CHECK(r.present() == std::vector<uint32_t>{8});
    }
    SECTION("withdrawn") {
        r.say(r.one, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
        CHECK(r.present().empty());
    }
    SECTION("lost") {
        r.machine.on_peer_down(r.one, {3, 3}, Time(ms(1)));
        r.machine.on_peer_up(r.one, {3, 3}, Time(ms(1)));
        CHECK(r.present().empty());
    }
}

TEST_CASE("an open that came directly and was passed on is kept until the last way is lost",
          "[rendezvous][R31]") {
    Relays r;
    const auto connect = [&] { r.machine.on_peer_up(r.absent, {5, 50}, Time(ms(1))); };
    SECTION("directly first: its node notices the cut before the leader does") {
        connect();
        r.say(r.absent, r.open(9));
        r.say(r.one, r.open(9));
    }
    SECTION("passed on first: what it sent directly was on its way for longer") {
        r.say(r.one, r.open(9));
        connect();
        r.say(r.absent, r.open(9));
    }
    r.machine.on_peer_down(r.absent, {5, 50}, Time(ms(1)));
    CHECK(r.present() == std::vector<uint32_t>{9});
    r.say(r.one, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
    CHECK(r.present().empty());
}

TEST_CASE("a relay withdraws its own way of an open that came directly, and its node all ways",
          "[rendezvous][R17][R31]") {
    Relays r;
    r.machine.on_peer_up(r.absent, {5, 50}, Time(ms(1)));
    r.say(r.absent, r.open(9));
    r.say(r.one, r.open(9));
    SECTION("the relay") {
        r.say(r.one, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
        CHECK(r.present() == std::vector<uint32_t>{9});
        r.machine.on_peer_down(r.absent, {5, 50}, Time(ms(1)));
    }
    SECTION("the node") {
        r.say(r.absent, wire::GroupWithdraw{r.open(9).id, key_of("g"), false, false});
    }
    SECTION("the node, started again") {
        r.machine.on_peer_up(r.absent, {6, 50}, Time(ms(1)));
        r.say(r.absent, r.open(8, 6));
        CHECK(r.present() == std::vector<uint32_t>{8});
        return;
    }
    CHECK(r.present().empty());
}

TEST_CASE("a node that passes an open on keeps it for the way that is left", "[rendezvous][R31]") {
    Rendezvous machine(config_of(node_id(1)));
    const NodeId leader = node_id(0), other = node_id(2), origin = node_id(3);
    for (const NodeId& node : {leader, other, origin}) machine.on_peer_up(node, {}, Time{});
    const wire::GroupOpen open{{origin, 1}, key_of("g"), "g", 3, 1, 9, {}};
    for (const NodeId& from : {origin, other}) machine.on_message(from, open, Time(ms(1)));
    while (machine.poll_action()) continue;
    const auto withdrawn = [&](const NodeId& lost) {
        machine.on_peer_down(lost, {}, Time(ms(1)));
        machine.check_invariants();
        bool out = false;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                out |= send->to == leader && std::holds_alternative<wire::GroupWithdraw>(send->message);
        return out;
    };
    CHECK_FALSE(withdrawn(origin));
    CHECK(withdrawn(other));
}

TEST_CASE("what is passed on to another leader is withdrawn from the one before, where it may be on its way",
          "[rendezvous][R26]") {
    Rendezvous machine(config_of(node_id(2)));
    const NodeId former = node_id(0), next = node_id(1), origin = node_id(3);
    const bool leads_itself = GENERATE(false, true);  // then
    for (const NodeId& node : {former, next, origin})
        if (node != next || !leads_itself) machine.on_peer_up(node, {}, Time{});
    machine.on_message(origin, wire::GroupOpen{{origin, 1}, key_of("g"), "g", 3, 1, 9, {}}, Time(ms(1)));
    while (machine.poll_action()) continue;
    machine.on_peer_down(former, {}, Time(ms(2)));
    std::set<NodeId> withdrawn, opened;
    while (const auto action = machine.poll_action()) {
        const auto& send = std::get<Send>(*action);
        if (std::holds_alternative<wire::GroupWithdraw>(send.message)) withdrawn.insert(send.to);
        if (std::holds_alternative<wire::GroupOpen>(send.message)) opened.insert(send.to);
    }
    CHECK(withdrawn == std::set<NodeId>{former});
    CHECK(opened == (leads_itself ? std::set<NodeId>{} : std::set<NodeId>{next}));
}

TEST_CASE("what ends before it is passed on again is withdrawn where it was passed on before",
          "[rendezvous][R26]") {
    Config config = config_of(node_id(2));
    config.relists_at_once_max = 1;
    Rendezvous machine(config);
    const NodeId former = node_id(0), next = node_id(1), origin = node_id(3);
    const bool leads_itself = GENERATE(false, true), is_lost = GENERATE(false, true);
    for (const NodeId& node : {former, next, origin})
        if (node != next || !leads_itself) machine.on_peer_up(node, {}, Time{});
    const wire::RequestId first{origin, 1}, second{origin, 2};
    for (const wire::RequestId& id : {first, second})
        machine.on_message(origin, wire::GroupOpen{id, key_of("g"), "g", 3, 1, 9, {}}, Time(ms(1)));
    while (machine.poll_action()) continue;
    machine.on_peer_down(former, {}, Time(ms(2)));  // a turn for one of them
    if (is_lost)
        machine.on_peer_down(origin, {}, Time(ms(2)));
    else
        machine.on_message(origin, wire::GroupWithdraw{second, key_of("g"), false, false}, Time(ms(2)));
    while (machine.wake_at() <= Time(ms(2))) machine.on_time(Time(ms(2)));
    std::set<std::pair<NodeId, wire::RequestId>> withdrawn;
    while (const auto action = machine.poll_action()) {
        const auto* send = std::get_if<Send>(&*action);
        REQUIRE(send);
        if (const auto* withdraw = std::get_if<wire::GroupWithdraw>(&send->message))
            withdrawn.insert({send->to, withdraw->id});
    }
    CHECK(withdrawn.contains({former, second}));
}

TEST_CASE("what is listed again with a former leader that has an attempt with it is passed on after that",
          "[rendezvous][R26]") {
    Rendezvous machine(config_of(node_id(1)));
    const NodeId next = node_id(0), origin = node_id(3);
    machine.on_peer_up(origin, {}, Time{});
    const wire::GroupOpen open{{origin, 1}, key_of("g"), "g", 1, 0, 9, {}};
    const auto passed_on = [&] {
        size_t out = 0;
        while (const auto action = machine.poll_action()) {
            const auto& send = std::get<Send>(*action);
            out += send.to == next && std::holds_alternative<wire::GroupOpen>(send.message);
        }
        machine.check_invariants();
        return out;
    };
    machine.on_message(origin, open, Time(ms(1)));
    const auto first = machine.poll_action();
    REQUIRE(first);
    const GroupId id = std::get<wire::GroupPrepare>(std::get<Send>(*first).message).group;
    machine.on_peer_up(next, {}, Time(ms(2)));
    machine.on_message(origin, open, Time(ms(2)));
    CHECK(passed_on() == 0);
    const bool is_made = GENERATE(false, true);
    const Error error{is_made ? Errc::ok : Errc::pending, "", -1, -1, {}};
    machine.on_message(origin, wire::GroupPrepared{id, error, {}}, Time(ms(3)));
    CHECK(passed_on() == (is_made ? 0 : 1));
}

TEST_CASE("an open that was in an attempt when its leader changed is withdrawn from the former one, too",
          "[rendezvous][R26]") {
    Rendezvous machine(config_of(node_id(3)));
    const NodeId next = node_id(0), former = node_id(1), other = node_id(2);
    for (const NodeId& node : {former, other}) machine.on_peer_up(node, {}, Time{});
    const auto id = machine.open({SessionId{1}, key_of("g"), false, "g", 2, 0, 9, ms(60'000)}, Time{});
    REQUIRE(id);
    wire::GroupPrepare prepare;
    prepare.group = {former.prefix(), 0, 3};
    prepare.key = key_of("g");
    prepare.name = "g";
    const wire::Nonce nonce = std::get<wire::GroupOpen>(std::get<Send>(*machine.poll_action()).message).nonce;
    prepare.members = {{*id, node_id(3), 0, 9, {}, 0, nonce}, {{other, 5}, other, 1, 7, {}, 0, {}}};
    machine.on_message(former, prepare, Time(ms(1)));
    REQUIRE(machine.awaits(prepare.group));
    machine.on_peer_up(next, {}, Time(ms(2)));
    while (machine.poll_action()) continue;
    machine.on_message(former, wire::GroupRefused{{}, prepare.group, {Errc::pending, "", -1, -1, {}}},
                       Time(ms(3)));
    const auto withdrawn = machine.poll_action(), listed = machine.poll_action();
    REQUIRE(withdrawn);
    CHECK(std::get<Send>(*withdrawn).to == former);
    CHECK(std::holds_alternative<wire::GroupWithdraw>(std::get<Send>(*withdrawn).message));
    REQUIRE(listed);
    CHECK(std::get<Send>(*listed).to == next);
    CHECK(std::holds_alternative<wire::GroupOpen>(std::get<Send>(*listed).message));
}

TEST_CASE("the end of an open goes back by all its ways, and a lost way is announced to its node",
          "[rendezvous][R31]") {
    Relays r;
    r.machine.on_peer_up(r.absent, {5, 50}, Time(ms(1)));
    for (const NodeId& from : {r.absent, r.one, r.two}) r.say(from, r.open(9));
    const auto to = [&]<class M>(const M&) {
        std::set<NodeId> out;
        while (const auto action = r.machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                if (std::holds_alternative<M>(send->message)) out.insert(send->to);
        return out;
    };
    SECTION("refused") {
        wire::GroupOpen open = r.open(8);
        open.id = {r.two, 1};
        open.incarnation = {3, 3};
        open.size = 4;
        r.machine.on_message(r.two, open, Time(ms(1)));
        CHECK(to(wire::GroupRefused{}) == std::set<NodeId>{r.absent, r.one, r.two});
    }
    SECTION("lost") {
        r.machine.on_peer_down(r.one, {3, 3}, Time(ms(1)));
        CHECK(to(wire::GroupUnlisted{}) == std::set<NodeId>{r.one});
        CHECK(r.present() == std::vector<uint32_t>{9});
    }
}

TEST_CASE("another way of an open takes no room of other opens", "[rendezvous][R25][R31]") {
    Config config = config_of(node_id(0));
    config.directory_max = 1;
    Rendezvous machine(config);
    const NodeId relay = node_id(1), origin = node_id(2);
    for (const NodeId& node : {relay, origin}) machine.on_peer_up(node, {}, Time{});
    for (const NodeId& from : {origin, relay})
        machine.on_message(from, wire::GroupOpen{{origin, 1}, key_of("g"), "g", 2, 1, 9, {}}, Time{});
    CHECK_FALSE(machine.poll_action());
}

TEST_CASE("an open whose node notices a cut before the leader does ends with LINK_LOST at once",
          "[rendezvous][R7][R31]") {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed);
        cluster.open(2, "train", 2, 0, ms(30'000));
        cluster.run(ms(100));
        cluster.cut(2, 0);
        cluster.run(ms(100));  // listed again through node 1
        if (seed % 2 == 0) cluster.notice_cut(0, 2);
        cluster.open(0, "train", 2, 1, ms(30'000));
        cluster.run(ms(100));
        if (seed % 2 == 1) cluster.notice_cut(0, 2);
        cluster.run(ms(10'000));
        for (const auto& opener : cluster.openers()) {
            REQUIRE(opener.failed);
            CHECK(opener.failed->code == Errc::link_lost);
        }
    }
}

}  // namespace nexar::rendezvous
