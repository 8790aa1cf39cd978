// Members that lost the leader of an attempt ask the others: who has not decided answers when it has, and who
// was not in the attempt does not count.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <map>
#include <vector>

#include "member.hpp"

namespace nexar::rendezvous {
namespace {

template <class M>
std::vector<std::pair<NodeId, M>> sent(Rendezvous& machine) {
    std::vector<std::pair<NodeId, M>> out;
    while (const auto action = machine.poll_action())
        if (const auto* send = std::get_if<Send>(&*action))
            if (const auto* m = std::get_if<M>(&send->message)) out.emplace_back(send->to, *m);
    machine.check_invariants();
    return out;
}

// A member that has prepared an attempt of three: itself, `other` and `third`, which does not answer.
struct Prepared : Member {
    Prepared() : Member(3) {
        machine.on_peer_up(third, {}, Time{});
        machine.on_message(leader, prepare(), Time(ms(1)));
        sent();
    }
    wire::GroupPrepare prepare() const {
        wire::GroupPrepare out = Member::prepare();
        out.members.push_back({{third, 6}, third, 2, 8, {}, 0, {}});
        return out;
    }
    const NodeId third = node_id(7);
};

}  // namespace

TEST_CASE("a member that has not decided answers a question when it has", "[rendezvous][R34]") {
    Prepared m;
    for (const NodeId& node : {other, other, other2}) m.machine.on_message(node, wire::GroupQuery{group}, {});
    REQUIRE(m.sent().empty());
    SECTION("committed: the tags go to members only") {
        m.machine.on_message(leader, Member::commit(m.prepare()), Time(ms(3)));
        const auto answers = sent<wire::GroupCommit>(m.machine);
        REQUIRE(answers.size() == 1);
        CHECK(answers[0].first == other);
        CHECK(answers[0].second.tags == Member::commit(m.prepare()).tags);
    }
    SECTION("called off by the leader: with its reason") {
        const Error error{Errc::link_lost, "nodes a and b do not reach each other", 0, 1, {}};
        m.machine.on_message(leader, wire::GroupRefused{{}, group, error}, Time(ms(3)));
        const auto answers = sent<wire::GroupRefused>(m.machine);
        REQUIRE(answers.size() == 1);
        CHECK(answers[0].first == other);
        CHECK(answers[0].second.error.code == Errc::link_lost);
    }
    SECTION("called off because nobody knew") {
        m.machine.on_peer_down(leader, {}, Time(ms(3)));
        m.machine.on_peer_down(m.third, {}, Time(ms(3)));
        m.machine.on_time(m.machine.wake_at());
        CHECK(m.machine.awaits(group) == false);
        CHECK(sent<wire::GroupRefused>(m.machine).size() == 1);
    }
}

TEST_CASE("a member waits for others that have not decided, as long as for its leader", "[rendezvous][R34]") {
    Prepared m;
    m.machine.on_peer_down(leader, {}, Time(ms(10)));
    const Duration query = config_of(self).query_timeout, decision = config_of(self).decision_timeout;
    const auto wait = [&](Time until) {
        while (m.machine.wake_at() < until) m.machine.on_time(m.machine.wake_at());
        return m.machine.awaits(group);
    };
    SECTION("they may still get the decision") {
        CHECK(wait(Time(ms(10)) + query + ms(500)));
        m.machine.on_message(m.third, Member::commit(m.prepare()), Time(ms(1600)));
        CHECK_FALSE(m.machine.awaits(group));
        m.sent();
        CHECK(m.opened == 1);
    }
    SECTION("not for ever") {
        CHECK(wait(Time(ms(1)) + decision));
        CHECK_FALSE(wait(Time(ms(2)) + decision + query));
    }
    SECTION("all have lost the leader") {
        for (const NodeId& node : {other, m.third})
            m.machine.on_message(node, wire::GroupQuery{group}, Time(ms(11)));
        CHECK_FALSE(wait(Time(ms(11)) + query));
    }
    SECTION("nobody can answer") {
        for (const NodeId& node : {other, m.third}) m.machine.on_peer_down(node, {}, Time(ms(11)));
        CHECK_FALSE(wait(Time(ms(11)) + query));
    }
}

TEST_CASE("what a member says that was started again since does not count", "[rendezvous][R35]") {
    Member m(3);
    const NodeId third = node_id(7);
    const Incarnation then{1, 7};
    m.machine.on_peer_up(third, then, Time{});
    wire::GroupPrepare prepare = m.prepare();
    prepare.members.push_back({{third, 6}, third, 2, 8, then, 0, {}});
    m.machine.on_message(leader, prepare, Time(ms(1)));
    REQUIRE(m.machine.awaits(group));
    const bool again = GENERATE(false, true);
    if (again) m.machine.on_peer_up(third, {2, 8}, Time(ms(2)));
    m.machine.on_message(third, wire::GroupRefused{{}, group, {Errc::pending, "", -1, -1, {}}}, Time(ms(3)));
    CHECK(m.machine.awaits(group) == again);
}

TEST_CASE("a node that was started again since does not call off what it has forgotten",
          "[rendezvous][R35]") {
    // Node 0 leads and is no member. It is started again before node 2 has its commit, and node 2 learns of
    // that by the new connection.
    size_t committed = 0, aborted = 0;
    for (uint64_t seed = 1; seed <= 400; ++seed) {
        CAPTURE(seed);
        Cluster cluster(3, seed);
        for (unsigned node = 1; node < 3; ++node) cluster.open(node, "train", 2, node - 1, ms(20'000));
        cluster.run(Duration(static_cast<int64_t>(seed * 30'000)));
        cluster.restart(0, 2);
        cluster.run(Duration(static_cast<int64_t>(seed % 7 * 1'000'000)));
        const bool was_made = cluster.groups() > 0;
        cluster.link(0, 2);
        cluster.run(ms(10'000));
        CHECK(cluster.disowned() == 0);
        for (const auto& opener : cluster.openers()) {
            REQUIRE(opener.group);
            CHECK(opener.group == cluster.openers()[0].group);
        }
        ++(was_made ? committed : aborted);
    }
    CHECK(committed > 20);
    CHECK(aborted > 20);
}

}  // namespace nexar::rendezvous
