// Ids of attempts: each leader has its own, and what was decided about them is kept.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <string>
#include <vector>

#include "member.hpp"

namespace nexar::rendezvous {
namespace {

constexpr size_t few = 4;  // decisions

// A leader that commits groups of two: node 1, and itself or node 2.
struct Leader {
    explicit Leader(bool member) : member(member), machine(config()) {
        for (const NodeId& node : {one, two}) machine.on_peer_up(node, {}, Time{});
    }
    static Config config() {
        Config out = config_of(node_id(0));
        out.decisions_max = few;
        return out;
    }
    GroupId commit() {
        const std::string name = "group " + std::to_string(++number);
        const auto open = [&](const NodeId& node, int64_t rank) {
            machine.on_message(node, wire::GroupOpen{{node, number}, key_of(name), name, 2, rank, 7, {}},
                               Time(ms(1)));
        };
        if (member)
            REQUIRE(machine.open({SessionId{number}, key_of(name), false, name, 2, 0, 9, ms(60'000)},
                                 Time(ms(1))));
        else
            open(two, 0);
        open(one, 1);
        wire::GroupPrepare prepare;
        for (const auto& message : sent())
            if (const auto* of = std::get_if<wire::GroupPrepare>(&message)) prepare = *of;
        const Proof proof(Member::port(), {}, prepare);
        for (const NodeId& node : {one, two})
            machine.on_message(node, wire::GroupPrepared{prepare.group, {}, proof.tag_of(node, {})},
                               Time(ms(2)));
        REQUIRE(count<wire::GroupCommit>(sent()) == (member ? 1 : 2));
        return prepare.group;
    }
    void commit_very_many() {
        for (size_t i = 0; i < 3 * few; ++i) machine.group_ended(commit());
    }
    std::vector<wire::Message> sent() {
        std::vector<wire::Message> out;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action)) out.push_back(send->message);
        machine.check_invariants();
        return out;
    }
    std::vector<wire::Message> answers(const wire::Message& message) {
        machine.on_message(one, message, Time(ms(3)));
        return sent();
    }
    const NodeId one = node_id(1), two = node_id(2);
    const bool member;
    uint64_t number = 0;
    Rendezvous machine;
};

}  // namespace

TEST_CASE("a node remembers the commit of a group that it has, whatever was decided since",
          "[rendezvous][R8][R32]") {
    Leader node(true);
    const GroupId made = node.commit();
    node.commit_very_many();
    const auto answers = node.answers(wire::GroupQuery{made});
    REQUIRE(answers.size() == 1);
    REQUIRE(std::holds_alternative<wire::GroupCommit>(answers[0]));
    CHECK(std::get<wire::GroupCommit>(answers[0]).tags.size() == 2);
    CHECK(node.answers(answers[0]).empty());  // it has it already
    CHECK(node.machine.groups() == 1);
    // It can still be disowned [R9].
    node.machine.on_message(node.one, wire::GroupRefused{{}, made, {Errc::peer_lost, "", -1, -1, {}}},
                            Time(ms(4)));
    const auto action = node.machine.poll_action();
    REQUIRE(action);
    CHECK(std::holds_alternative<Disowned>(*action));
}

TEST_CASE("a leader never calls off an attempt of its own whose decision it has forgotten",
          "[rendezvous][R8][R32]") {
    const bool member = GENERATE(false, true);
    Leader node(member);
    const GroupId made = node.commit();
    node.machine.group_ended(made);
    node.commit_very_many();
    CHECK(node.answers(wire::GroupQuery{made}).empty());
    CHECK(node.answers(wire::GroupCommit{made, {}}).empty());
    // One that it has not made is unknown.
    GroupId unknown = made;
    unknown.counter += 1000;
    CHECK(count<wire::GroupRefused>(node.answers(wire::GroupQuery{unknown})) == 1);
}

TEST_CASE("a leader uses up no ids of another one's coming attempts", "[rendezvous][R5][H2]") {
    const Incarnation own{4, 44}, others{5, 55};
    Member m;
    m.machine.on_peer_up(leader, own, Time{});
    m.machine.on_peer_up(other, others, Time{});
    wire::GroupPrepare coming = m.prepare();
    SECTION("of another node") {
        coming.group = {other.prefix(), others.nonce, 3};
    }
    SECTION("of another incarnation of its own") {
        coming.group = {leader.prefix(), others.nonce, 3};
    }
    SECTION("of the node that it asks") {
        coming.group = {self.prefix(), 0, 3};
    }
    m.sent();
    m.machine.on_message(leader, coming, Time(ms(1)));
    const auto refused = m.sent();
    REQUIRE(count<wire::GroupPrepared>(refused) == 1);
    CHECK(std::get<wire::GroupPrepared>(refused.back()).error.code == Errc::pending);
    CHECK_FALSE(m.machine.awaits(coming.group));
    m.machine.on_message(leader, wire::GroupRefused{{}, coming.group, {Errc::pending, "", -1, -1, {}}},
                         Time(ms(2)));

    // The next leader, which made the id, may use it.
    m.machine.on_peer_down(leader, own, Time(ms(3)));
    if (coming.group.creator != other.prefix()) return;
    m.sent();
    m.machine.on_message(other, coming, Time(ms(4)));
    const auto sent = m.sent();
    REQUIRE(count<wire::GroupPrepared>(sent) == 1);
    CHECK(std::get<wire::GroupPrepared>(sent.back()).error.code == Errc::ok);
}

TEST_CASE("a leader's attempts do not displace what was decided about another one's",
          "[rendezvous][R10][H2]") {
    Member m;
    m.machine.on_message(leader, m.prepare(), Time(ms(1)));
    m.machine.on_message(leader, m.commit(), Time(ms(2)));
    m.machine.group_ended(group);  // until then it is kept [R32]
    m.machine.on_peer_down(leader, {}, Time(ms(3)));
    m.request = *m.machine.open({SessionId{1}, key_of("g"), false, "g", 2, 0, 9, ms(60'000)}, Time(ms(3)));
    wire::GroupPrepare prepare = m.prepare();
    for (const auto& message : m.sent())
        if (const auto* open = std::get_if<wire::GroupOpen>(&message)) prepare.members[0].nonce = open->nonce;
    prepare.group.creator = other.prefix();
    for (size_t i = 0; i < 2 * config_of(self).decisions_max; ++i) {
        ++prepare.group.counter;
        m.machine.on_message(other, prepare, Time(ms(4)));
        REQUIRE(m.machine.awaits(prepare.group));
        m.machine.on_message(other, wire::GroupRefused{{}, prepare.group, {Errc::pending, "", -1, -1, {}}},
                             Time(ms(4)));
    }
    m.machine.check_invariants();
    m.sent();
    m.machine.on_message(other, wire::GroupQuery{group}, Time(ms(5)));
    CHECK(count<wire::GroupCommit>(m.sent()) == 1);
}

}  // namespace nexar::rendezvous
