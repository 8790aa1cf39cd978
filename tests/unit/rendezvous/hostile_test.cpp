// Messages that make no sense, repeated or out of order: answered or ignored, never more.
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "member.hpp"
#include "wire/codec.hpp"
#include "wire/limits.hpp"

namespace nexar::rendezvous {
namespace {

TEST_CASE("repeated prepares and commits change nothing", "[rendezvous][R10]") {
    Member m;
    for (int i = 0; i < 3; ++i) m.machine.on_message(leader, m.prepare(), Time(ms(1)));
    CHECK(count<wire::GroupPrepared>(m.sent()) == 1);
    for (int i = 0; i < 3; ++i) m.machine.on_message(leader, m.commit(), Time(ms(2)));
    m.machine.on_message(leader, m.prepare(), Time(ms(3)));
    CHECK(m.sent().empty());
    CHECK(m.opened == 1);
    CHECK(m.machine.pending() == 0);
}

TEST_CASE("a prepare with opens that are not ours, listed twice, or of another key is refused",
          "[rendezvous][R5]") {
    Member m;
    auto prepare = m.prepare();
    SECTION("unknown") {
        prepare.members[0].request.number += 100;
    }
    SECTION("twice") {
        prepare.members.push_back({m.request, self, 2, 9});
    }
    SECTION("another key") {
        prepare.key = key_of("other");
    }
    SECTION("none of ours") {
        prepare.members[0].node = node_id(7);
    }
    m.machine.on_message(leader, prepare, Time(ms(1)));
    const auto sent = m.sent();
    REQUIRE(count<wire::GroupPrepared>(sent) == 1);
    CHECK(std::get<wire::GroupPrepared>(sent.back()).error.code == Errc::pending);
    // And stays refused.
    m.machine.on_message(leader, m.commit(), Time(ms(2)));
    CHECK(count<wire::GroupRefused>(m.sent()) == 1);
    CHECK(m.opened == 0);
    CHECK(m.machine.pending() == 1);
}

TEST_CASE("an open is reserved for one attempt at a time", "[rendezvous][R2]") {
    Member m;
    m.machine.on_message(leader, m.prepare(), Time(ms(1)));
    m.sent();
    auto second = m.prepare();
    second.group.counter = 99;
    SECTION("another leader is refused and takes it off its list") {
        second.group.creator = other.prefix();
        m.machine.on_message(other, second, Time(ms(2)));
        const auto sent = m.sent();
        CHECK(count<wire::GroupWithdraw>(sent) == 1);
        CHECK(std::get<wire::GroupPrepared>(sent.back()).error.code == Errc::pending);
    }
    SECTION("the same leader has begun again") {
        m.machine.on_message(leader, second, Time(ms(2)));
        CHECK(std::get<wire::GroupPrepared>(m.sent().back()).error.code == Errc::ok);
        m.machine.on_message(leader, m.commit(second), Time(ms(3)));
        m.sent();
        CHECK(m.opened == 1);
    }
}

TEST_CASE("a leader that another one has replaced leads an open no more", "[rendezvous][R2][H2]") {
    Member m;
    const NodeId lower = node_id(0), former = other;
    m.machine.on_peer_down(lower, {}, Time(ms(1)));  // listed with the other node
    m.machine.on_peer_up(lower, {}, Time(ms(2)));    // and with this one since
    m.sent();
    wire::GroupPrepare prepare = m.prepare();
    prepare.group.creator = former.prefix();
    m.machine.on_message(former, prepare, Time(ms(3)));
    const auto sent = m.sent();
    CHECK(std::get<wire::GroupPrepared>(sent.back()).error.code == Errc::pending);
    CHECK(count<wire::GroupWithdraw>(sent) == 1);
    m.machine.on_message(lower, m.prepare(), Time(ms(4)));
    CHECK(std::get<wire::GroupPrepared>(m.sent().back()).error.code == Errc::ok);
}

TEST_CASE("refusals from other nodes do not end an attempt or an open", "[rendezvous]") {
    Member m;
    const Error error{Errc::rank_clash, "no", -1, -1, {}};
    m.machine.on_message(node_id(8), wire::GroupRefused{m.request, {}, error}, Time(ms(1)));
    m.machine.on_message(leader, m.prepare(), Time(ms(1)));
    m.machine.on_message(node_id(8), wire::GroupRefused{{}, group, error}, Time(ms(1)));
    m.machine.on_message(leader, wire::GroupRefused{m.request, {}, error},
                         Time(ms(1)));  // reserved meanwhile
    m.machine.on_message(leader, m.commit(), Time(ms(1)));
    m.sent();
    CHECK(m.failed == 0);
    CHECK(m.opened == 1);
}

TEST_CASE("a committed group that another member disowns ends once, and the others are notified",
          "[rendezvous][R9]") {
    Member m(3);
    auto prepare = m.prepare();
    prepare.members.push_back({{leader, 9}, leader, 2, 8});
    m.machine.on_message(leader, prepare, Time(ms(1)));
    m.machine.on_message(leader, m.commit(prepare), Time(ms(2)));
    m.sent();
    const wire::GroupRefused word{{}, group, {Errc::peer_lost, "called off", -1, -1, {}}};
    m.machine.on_message(node_id(8), word, Time(ms(3)));
    CHECK(m.disowned == 0);
    m.sent();
    for (int i = 0; i < 3; ++i) m.machine.on_message(other, word, Time(ms(3)));
    const auto sent = m.sent();
    REQUIRE(count<wire::GroupRefused>(sent) == 1);
    CHECK(std::get<wire::GroupRefused>(sent[0]).id.origin == other);
    CHECK(m.disowned == 1);
}

TEST_CASE("a reservation without a decision asks the others and is called off in bounded time",
          "[rendezvous][R8]") {
    Member m;
    m.machine.on_message(leader, m.prepare(), Time(ms(0)));
    m.sent();
    SECTION("nobody answers") {
        m.machine.on_time(Time(ms(3000)));
        CHECK(count<wire::GroupQuery>(m.sent()) == 2);
        m.machine.on_time(Time(ms(4000)));
        CHECK(count<wire::GroupOpen>(m.sent()) == 1);  // listed again
    }
    SECTION("the leader is lost and another member has committed") {
        m.machine.on_peer_down(leader, {}, Time(ms(10)));
        CHECK(count<wire::GroupQuery>(m.sent()) == 2);
        m.machine.on_message(other, m.commit(), Time(ms(20)));
        m.sent();
        CHECK(m.opened == 1);
    }
    SECTION("the leader is lost and another member has called off") {
        m.machine.on_peer_down(leader, {}, Time(ms(10)));
        m.sent();
        m.machine.on_message(other, wire::GroupRefused{{}, group, {Errc::pending, "no", -1, -1, {}}},
                             Time(ms(20)));
        CHECK(count<wire::GroupOpen>(m.sent()) == 1);
        // Its late commit is answered with the truth.
        m.machine.on_message(leader, m.commit(), Time(ms(30)));
        CHECK(count<wire::GroupRefused>(m.sent()) == 1);
    }
    CHECK(m.failed == 0);
}

TEST_CASE("an open is listed again when its leader has lost it, and not because of a connection",
          "[rendezvous][R1]") {
    Member m;
    for (const NodeId& node : {leader, other}) m.machine.on_peer_up(node, {}, Time(ms(1)));
    m.machine.on_message(other, wire::GroupUnlisted{m.request}, Time(ms(2)));
    CHECK(m.sent().empty());
    m.machine.on_message(leader, wire::GroupUnlisted{m.request}, Time(ms(3)));
    CHECK(count<wire::GroupOpen>(m.sent()) == 1);
}

TEST_CASE("opens of more nodes than a group may have are refused; a leader's message has room for the rest",
          "[rendezvous]") {
    Rendezvous machine(config_of(self));
    machine.on_peer_up(other2, {}, Time{});
    constexpr unsigned extra = 20;
    size_t refused = 0;
    const auto look = [&] {
        while (const auto action = machine.poll_action()) {
            const auto* send = std::get_if<Send>(&*action);
            REQUIRE(send != nullptr);
            if (const auto* no = std::get_if<wire::GroupRefused>(&send->message)) {
                CHECK(no->error.code == Errc::table_full);
                CHECK(no->error.text.find("4096 nodes") != std::string::npos);
                ++refused;
            }
            CHECK(!wire::encode(send->message).empty());
        }
    };
    for (unsigned i = 0; i < wire::group_nodes_max + extra; ++i) {
        NodeId node;
        node.bytes[0] = 9;
        std::memcpy(node.bytes.data() + 4, &i, sizeof i);
        const wire::GroupOpen open{{node, 1}, key_of("g"), "g", 60'000, -1, 7, {}, 1};
        machine.on_message(other2, open, Time(ms(1)));
        // Withdrawn and opened again it is one node still.
        if (i % 64 != 0 || i >= wire::group_nodes_max) continue;
        machine.on_message(other2, wire::GroupWithdraw{open.id, open.key, false, true}, Time(ms(1)));
        machine.on_message(other2, open, Time(ms(1)));
    }
    look();
    CHECK(refused == extra);
    // Those whose time was over a moment ago are listed too.
    for (unsigned i = 0; i < 40; ++i) {
        NodeId node;
        node.bytes[0] = 9;
        std::memcpy(node.bytes.data() + 4, &i, sizeof i);
        machine.on_message(other2, wire::GroupWithdraw{{node, 1}, key_of("g"), false, true}, Time(ms(2)));
        node.bytes[0] = 10;
        machine.on_message(other2, wire::GroupOpen{{node, 1}, key_of("g"), "g", 60'000, -1, 8, {}, 1},
                           Time(ms(2)));
    }
    machine.on_message(other2, wire::GroupStatusRequest{{other2, 1}, key_of("g")}, Time(ms(3)));
    look();
}

TEST_CASE("opens of one node in many incarnations at once make no list that a message has no room for",
          "[rendezvous][H12]") {
    Rendezvous machine(config_of(self));
    machine.on_peer_up(other2, {}, Time{});
    constexpr unsigned opens = wire::group_nodes_max + 100;
    size_t statuses = 0, listed = 0;
    const auto look = [&] {
        while (const auto action = machine.poll_action()) {
            const auto* send = std::get_if<Send>(&*action);
            REQUIRE(send != nullptr);
            CHECK(!wire::encode(send->message).empty());
            const auto* status = std::get_if<wire::GroupStatus>(&send->message);
            if (status == nullptr) continue;
            ++statuses;
            listed = status->present.size();
        }
    };
    SECTION("of one number, which has one nonce") {
        for (unsigned i = 1; i <= opens; ++i)
            machine.on_message(
                other2, wire::GroupOpen{{other2, i}, key_of("g"), "g", opens, -1, 7, {5, i}, 1}, Time(ms(1)));
        look();
        machine.on_message(other2, wire::GroupStatusRequest{{other2, 1}, key_of("g")}, Time(ms(1)));
        look();
        CHECK(listed == 1);
    }
    SECTION("which end one after the other, and are listed for a moment") {
        for (unsigned i = 1; i <= opens; ++i) {
            const wire::GroupOpen open{{other2, i}, key_of("g"), "g", 60'000, -1, i, {i, 1}, 1};
            machine.on_message(other2, open, Time(ms(1)));
            machine.on_message(other2, wire::GroupWithdraw{open.id, open.key, false, true}, Time(ms(1)));
        }
        machine.on_message(other2, wire::GroupOpen{{other, 1}, key_of("g"), "g", 60'000, -1, 9, {1, 1}, 1},
                           Time(ms(1)));
        machine.on_message(other2, wire::GroupStatusRequest{{other2, 1}, key_of("g")}, Time(ms(1)));
        look();
    }
    CHECK(statuses == 1);
}

TEST_CASE("a node that is asked about an attempt it never saw will not join it later", "[rendezvous][R8]") {
    Member m;
    m.machine.on_message(other, wire::GroupQuery{group}, Time(ms(1)));
    CHECK(count<wire::GroupRefused>(m.sent()) == 1);
    m.machine.on_message(leader, m.prepare(), Time(ms(2)));
    const auto sent = m.sent();
    REQUIRE(count<wire::GroupPrepared>(sent) == 1);
    CHECK(std::get<wire::GroupPrepared>(sent[0]).error.code == Errc::pending);
}

// The member's side, with the leader at 0 and a foreign node that is connected and in no group.
const NodeId foreign = node_id(2);

TEST_CASE("an open of a local group is never led from outside, whatever the prepare says",
          "[rendezvous][H2]") {
    Member m;
    const auto local = *m.machine.open({SessionId{1}, key_of("l"), true, "l", 2, 0, 9, ms(60'000)}, Time{});
    for (const NodeId& from : {leader, other, foreign}) {
        wire::GroupPrepare prepare = m.prepare();
        prepare.group = {from.prefix(), 9, 1};
        prepare.key = key_of("l");
        prepare.members[0].request = local;
        m.machine.on_message(from, prepare, Time(ms(1)));
        const auto sent = m.sent();
        REQUIRE(count<wire::GroupPrepared>(sent) == 1);
        CHECK(std::get<wire::GroupPrepared>(sent.back()).error.code == Errc::pending);
        m.machine.on_message(from, m.commit(prepare), Time(ms(2)));
        CHECK(m.opened == 0);
    }
    // And its own node leads it as before.
    (void)m.machine.open({SessionId{2}, key_of("l"), true, "l", 2, 1, 9, ms(60'000)}, Time(ms(3)));
    m.sent();
    CHECK(m.opened == 1);
}

TEST_CASE("only who was sent an open leads it, with the rank and the size that it asked for",
          "[rendezvous][H2][R17]") {
    Member m;
    wire::GroupPrepare prepare = m.prepare();
    NodeId from = leader;
    SECTION("a node that it was not listed with") {
        from = other;
        prepare.group.creator = other.prefix();
    }
    SECTION("another rank") {
        std::swap(prepare.members[0].rank, prepare.members[1].rank);
    }
    SECTION("another size") {
        prepare.members.push_back({{leader, 7}, leader, 2, 8});
    }
    m.machine.on_message(from, prepare, Time(ms(1)));
    const auto sent = m.sent();
    REQUIRE(count<wire::GroupPrepared>(sent) == 1);
    CHECK(std::get<wire::GroupPrepared>(sent.back()).error.code == Errc::pending);
    m.machine.on_message(from, m.commit(prepare), Time(ms(2)));
    CHECK(m.opened == 0);
    CHECK(m.machine.pending() == 1);
}

TEST_CASE("a foreign node commits no attempt, and calls none off", "[rendezvous][H6][R6]") {
    Member m;
    m.machine.on_message(leader, m.prepare(), Time(ms(1)));
    m.sent();
    m.machine.on_message(foreign, m.commit(), Time(ms(2)));
    m.sent();
    CHECK(m.opened == 0);
    m.machine.on_message(leader, m.commit(), Time(ms(3)));
    m.sent();
    CHECK(m.opened == 1);
}

TEST_CASE("a foreign node does not disown a group in the name of a member", "[rendezvous][H6]") {
    Member m;
    m.machine.on_message(leader, m.prepare(), Time(ms(1)));
    m.machine.on_message(leader, m.commit(), Time(ms(2)));
    m.sent();
    const Error error{Errc::peer_lost, "a lie", -1, -1, {}};
    m.machine.on_message(foreign, wire::GroupRefused{{other, 0}, group, error}, Time(ms(3)));
    CHECK(count<wire::GroupRefused>(m.sent()) == 0);
    CHECK(m.disowned == 0);
    // The leader, which may be no member, and the members themselves may.
    m.machine.on_message(leader, wire::GroupRefused{{other, 0}, group, error}, Time(ms(3)));
    m.sent();
    CHECK(m.disowned == 1);
}

TEST_CASE("what a foreign node asks about attempts to come binds nobody, however much it asks",
          "[rendezvous][H6]") {
    Member m;
    for (uint64_t i = 0; i < 100; ++i)
        m.machine.on_message(foreign, wire::GroupQuery{{group.creator, group.incarnation, i}}, Time(ms(1)));
    m.sent();
    m.machine.on_message(leader, m.prepare(), Time(ms(2)));
    const auto sent = m.sent();
    REQUIRE(count<wire::GroupPrepared>(sent) == 1);
    CHECK(std::get<wire::GroupPrepared>(sent[0]).error.code == Errc::ok);
    m.machine.on_message(leader, m.commit(), Time(ms(3)));
    m.sent();
    CHECK(m.opened == 1);
    // Nor does it make the node forget what was decided.
    for (uint64_t i = 0; i < 10'000; ++i)
        m.machine.on_message(foreign, wire::GroupQuery{{7, 7, i}}, Time(ms(4)));
    m.sent();
    m.machine.on_message(leader, m.commit(), Time(ms(5)));
    CHECK(m.sent().empty());
}

TEST_CASE("who is missing is for the leader to say", "[rendezvous][H6]") {
    Member m;
    m.machine.on_time(Time(ms(60'000)));
    REQUIRE(count<wire::GroupStatusRequest>(m.sent()) == 1);
    m.machine.on_message(foreign, wire::GroupStatus{m.request, 2, m.prepare().members}, Time(ms(60'001)));
    m.machine.on_time(Time(ms(60'001)));
    m.sent();
    CHECK(m.failed == 0);
    m.machine.on_message(leader, wire::GroupStatus{m.request, 2, m.prepare().members}, Time(ms(60'002)));
    m.machine.on_time(Time(ms(60'002)));
    m.sent();
    CHECK(m.failed == 1);
}

// A leader with two connected nodes, one of which lies.
struct Leader {
    Leader() : machine(config_of(node_id(0))) {
        machine.on_peer_up(opener, incarnation, Time{});
        machine.on_peer_up(foreign, {3, 3}, Time{});
    }
    wire::GroupOpen open(uint64_t number, int64_t rank) const {
        return {{opener, number}, key_of("g"), "g", 2, rank, 9, incarnation};
    }
    size_t prepares() {
        size_t n = 0;
        while (const auto action = machine.poll_action())
            if (const auto* send = std::get_if<Send>(&*action))
                n += std::holds_alternative<wire::GroupPrepare>(send->message);
        return n;
    }
    static constexpr Incarnation incarnation{5, 55};
    const NodeId opener = node_id(1);
    Rendezvous machine;
};

TEST_CASE(
    "an open that another node made up, of a incarnation to come, does not stand in the way of the node's "
    "own",
    "[rendezvous][H6]") {
    Leader l;
    wire::GroupOpen lie = l.open(uint64_t{1} << 60, 0);
    SECTION("of a incarnation to come") {
        lie.incarnation = {UINT64_MAX, 1};
        lie.key = key_of("x");
    }
    SECTION("under the number of one that comes") {
        lie.id.number = 1;
        lie.key = key_of("x");
    }
    l.machine.on_message(foreign, lie, Time(ms(1)));
    l.machine.on_message(l.opener, l.open(1, 0), Time(ms(2)));
    l.machine.on_message(l.opener, l.open(2, 1), Time(ms(3)));
    CHECK(l.prepares() == 1);
}

TEST_CASE("a node lists its opens in the incarnation that it is connected in", "[rendezvous][H6][R17]") {
    Leader l;
    wire::GroupOpen later = l.open(1, 0);
    later.incarnation = {UINT64_MAX, 1};
    l.machine.on_message(l.opener, later, Time(ms(1)));
    l.machine.on_message(l.opener, l.open(2, 0), Time(ms(2)));
    l.machine.on_message(l.opener, l.open(3, 1), Time(ms(3)));
    CHECK(l.prepares() == 1);
}

// A relay cannot prove that a later incarnation of another node began.
TEST_CASE("what waits is not removed by what another node says of its node's incarnations",
          "[rendezvous][H6][R17]") {
    Leader l;
    l.machine.on_message(l.opener, l.open(1, 0), Time(ms(1)));
    wire::GroupOpen lie = l.open(uint64_t{1} << 60, 0);
    lie.incarnation = {UINT64_MAX, 1};
    lie.key = key_of("x");
    l.machine.on_message(foreign, lie, Time(ms(2)));
    l.machine.on_message(l.opener, l.open(2, 1), Time(ms(3)));
    CHECK(l.prepares() == 1);
}

TEST_CASE("a prepare is answered by the nodes in it", "[rendezvous][H6][R17]") {
    for (const Errc code : {Errc::ok, Errc::pending, Errc::link_lost}) {
        CAPTURE(name_of(code));
        Leader l;
        l.machine.on_message(l.opener, l.open(1, 0), Time(ms(1)));
        l.machine.on_message(l.opener, l.open(2, 1), Time(ms(2)));
        CHECK(l.prepares() == 1);
        const GroupId first{node_id(0).prefix(), 0, 1};
        l.machine.on_message(foreign, wire::GroupPrepared{first, {code, "", -1, -1, {}}, {}}, Time(ms(3)));
        CHECK_FALSE(l.machine.poll_action());
        l.machine.on_message(l.opener, wire::GroupPrepared{first, {}, {}}, Time(ms(4)));
        const auto action = l.machine.poll_action();
        REQUIRE(action);
        CHECK(std::holds_alternative<wire::GroupCommit>(std::get<Send>(*action).message));
    }
}

void every_open_ends(Member& m, Time now) {
    for (int i = 0; i < 1000 && m.machine.wake_at() != never; ++i) {
        now = std::max(now, m.machine.wake_at());
        m.machine.on_time(now);
        m.sent();
    }
    CHECK(m.machine.pending() == 0);
}

TEST_CASE("random messages from members never break the machine", "[rendezvous]") {
    for (uint64_t seed = 1; seed <= 200; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        Member m;
        auto some_node = [&] { return node_id(static_cast<unsigned>(random.below(5))); };
        auto some_group = [&] { return GroupId{some_node().prefix(), 2, 3 + random.below(3)}; };
        auto some_request = [&] {
            return random.one_in(3) ? m.request : wire::RequestId{some_node(), random.below(4)};
        };
        auto some_error = [&] {
            return Error{random.one_in(2)   ? Errc::pending
                         : random.one_in(2) ? Errc::ok
                                            : Errc::link_lost,
                         "",
                         -1,
                         -1,
                         {}};
        };
        auto some_message = [&]() -> wire::Message {
            const auto key = key_of(random.one_in(4) ? "h" : "g");
            const auto rank = static_cast<int64_t>(random.below(5)) - 1;
            switch (random.below(9)) {
                case 0:
                    return wire::GroupOpen{
                        some_request(), key, "g", 1 + static_cast<uint32_t>(random.below(3)), rank, 4};
                case 1:
                    return wire::GroupWithdraw{some_request(), key, random.one_in(2), random.one_in(2)};
                case 2: {
                    auto prepare = m.prepare();
                    prepare.group = some_group();
                    if (random.one_in(2)) prepare.members.push_back({some_request(), some_node(), 2, 3});
                    return prepare;
                }
                case 3:
                    return wire::GroupPrepared{some_group(), some_error()};
                case 4:
                    return random.one_in(2) ? m.commit() : wire::GroupCommit{some_group(), {}};
                case 5: {
                    const auto id = random.one_in(2) ? some_request() : wire::RequestId{};
                    return wire::GroupRefused{id, some_group(), {Errc::pending, "", -1, -1, {}}};
                }
                case 6:
                    return wire::GroupQuery{some_group()};
                case 7:
                    return wire::GroupStatusRequest{some_request(), key};
                default:
                    return wire::GroupStatus{some_request(), 2, m.prepare().members};
            }
        };
        Time now{};
        for (int i = 0; i < 300; ++i) {
            now += ms(static_cast<int64_t>(random.below(50)));
            if (random.one_in(10)) m.machine.on_peer_down(some_node(), {}, now);
            if (const NodeId up = some_node(); random.one_in(5) && up != self)
                m.machine.on_peer_up(up, {}, now);
            if (random.one_in(10))
                (void)m.machine.open({SessionId{2}, key_of("g"), false, "g", 2, -1, 9, ms(100)}, now);
            if (const NodeId from = some_node(); from != self)
                m.machine.on_message(from, some_message(), now);
            m.machine.on_time(now);
            m.sent();
        }
        every_open_ends(m, now);
    }
}

}  // namespace
}  // namespace nexar::rendezvous
