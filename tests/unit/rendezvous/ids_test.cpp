// Ids of attempts: each leader has its own, and what was decided about them is kept.
#include <catch2/catch_test_macros.hpp>

#include "member.hpp"

namespace nexar::rendezvous {

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
