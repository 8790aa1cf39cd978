// Bulk connections: announced incarnations, those that come too early or too late, redials [P12].
#include "connections/bulk.hpp"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "fake_carrier.hpp"
#include "nodes.hpp"

namespace nexar::connections {
namespace {

const NodeId self = node_id(5), low = node_id(1), high = node_id(9);
constexpr link::PeerIndex peer{3}, later{4};

struct Fixture {
    FakeCarrier carrier;
    link::Mesh mesh{link::MeshConfig{}};
    BulkConnections bulk;
    std::vector<BulkState> states;

    static BulkConfig config() {
        BulkConfig out;
        out.self = self;
        out.incarnation = {1, 1};
        out.shard = 2;
        out.waiting_max = 3;
        return out;
    }
    Fixture() : bulk(config(), carrier, mesh) { carrier.events = &bulk.events(); }

    void turn(Time now) {
        bulk.on_time(now);
        bulk.check_invariants();
        while (auto state = bulk.poll_event()) states.push_back(*state);
    }
    void introduce(const NodeId& node, Incarnation incarnation, link::PeerIndex index, bool dial, Time now) {
        bulk.introduce({index, node, incarnation, "there:2", dial}, now);
        turn(now);
    }
    ConnectionId accept(const NodeId& node, Incarnation incarnation, Time now, uint32_t generation = 3) {
        carrier.connect(node, now).receive(preamble_of(incarnation, generation, Purpose::bulk, 2));
        turn(now);
        return carrier.last;
    }
    // The last dial is answered.
    ConnectionId answer(const NodeId& node, Incarnation incarnation, Time now, uint32_t generation = 3) {
        const ConnectionId id = carrier.dials.back().id;
        carrier.connect(node, now, id).receive(preamble_of(incarnation, generation, Purpose::bulk, 2));
        turn(now);
        return id;
    }
    bool is_closed(ConnectionId id) { return carrier.conns.at(id).closed.has_value(); }
};

TEST_CASE("the lower NodeId dials the announced address, the other one waits", "[connections][P12]") {
    Fixture f;
    f.introduce(low, {1, 7}, peer, false, at_ms(0));
    CHECK(f.carrier.dials.empty());
    f.introduce(high, {1, 8}, later, true, at_ms(0));
    REQUIRE(f.carrier.dials.size() == 1);
    CHECK(f.carrier.dials[0].address == "there:2");
    CHECK(f.carrier.dials[0].expected == high);
    f.introduce(high, {1, 8}, later, true, at_ms(1));  // its control connection was replaced
    CHECK(f.carrier.dials.size() == 1);
    const ConnectionId id = f.answer(high, {1, 8}, at_ms(2));
    CHECK(f.bulk.conn_of(later) == id);
    CHECK((f.states.back().up && f.states.back().peer == later));
    f.accept(low, {1, 7}, at_ms(2));
    CHECK(f.carrier.conns.at(id).preamble().purpose == Purpose::bulk);
    CHECK(f.carrier.conns.at(id).preamble().shard == 2);
    for (int ms = 3; ms < 9000; ms += 50) f.turn(at_ms(ms));
    CHECK(f.carrier.dials.size() == 1);
    CHECK(f.bulk.peers().size() == 2);
}

TEST_CASE("a connection that is not for this shard's bulk is refused", "[connections][P12][V1]") {
    Fixture f;
    f.introduce(low, {1, 7}, peer, false, at_ms(0));
    FakeCarrier::Conn& control = f.carrier.connect(low, at_ms(0));
    control.receive(preamble_of({1, 7}, 3));
    FakeCarrier::Conn& other_shard = f.carrier.connect(low, at_ms(0));
    other_shard.receive(preamble_of({1, 7}, 3, Purpose::bulk, 1));
    FakeCarrier::Conn& ahead = f.carrier.connect(low, at_ms(0));
    Preamble later_version = preamble_of({1, 7}, 3, Purpose::bulk, 2);
    later_version.capabilities = {3, 4, 0, 0};  // [V1]
    ahead.receive(later_version);
    f.turn(at_ms(0));
    CHECK((control.closed && other_shard.closed && ahead.closed));
    CHECK_FALSE(f.bulk.conn_of(peer));
}

TEST_CASE("a connection waits for the announcement of its incarnation, an older one is refused",
          "[connections][P12][P9]") {
    Fixture f;
    const ConnectionId early = f.accept(low, {2, 8}, at_ms(0));
    CHECK_FALSE(f.is_closed(early));
    f.introduce(low, {1, 7}, peer, false, at_ms(10));  // not yet this one
    CHECK_FALSE(f.is_closed(early));
    CHECK_FALSE(f.bulk.conn_of(peer));
    const ConnectionId old = f.accept(low, {0, 3}, at_ms(20));
    CHECK(f.is_closed(old));
    f.introduce(low, {2, 8}, later, false, at_ms(30));
    CHECK(f.bulk.conn_of(later) == early);
    f.bulk.drop(peer);
    f.turn(at_ms(40));
    CHECK(f.bulk.conn_of(later) == early);
    CHECK(f.is_closed(f.accept(low, {1, 7}, at_ms(50), 9)));  // the one before
}

TEST_CASE("few connections wait for an announcement, and none longer than its patience",
          "[connections][P9][P12][H10]") {
    Fixture f;
    std::vector<ConnectionId> ids;
    for (unsigned n = 20; n < 23; ++n) ids.push_back(f.accept(node_id(n), {1, 7}, at_ms(0)));
    for (const ConnectionId id : ids) CHECK_FALSE(f.is_closed(id));
    CHECK(f.is_closed(f.accept(node_id(23), {1, 7}, at_ms(0))));
    f.carrier.close(ids[0], at_ms(1));
    f.turn(at_ms(1));
    CHECK_FALSE(f.is_closed(f.accept(node_id(24), {1, 7}, at_ms(1))));
    f.turn(at_ms(5000));
    CHECK((f.is_closed(ids[1]) && f.is_closed(ids[2])));
    f.introduce(node_id(21), {1, 7}, peer, false, at_ms(5001));
    CHECK_FALSE(f.bulk.conn_of(peer));
}

TEST_CASE("a dial that fails is repeated with back-off, until the incarnation is over",
          "[connections][P5][P12]") {
    Fixture f;
    f.introduce(high, {1, 8}, peer, true, at_ms(0));
    std::vector<int> dials{0};
    for (int ms = 0; ms < 9000; ++ms) {
        f.turn(at_ms(ms));
        if (f.carrier.dials.size() == dials.size()) {
            f.carrier.close(f.carrier.dials.back().id, at_ms(ms), "refused");
            dials.push_back(ms);
        }
    }
    CHECK(dials.size() >= 10);
    CHECK(dials.size() <= 20);
    f.bulk.drop(peer);
    const size_t before = f.carrier.dials.size();
    for (int ms = 9000; ms < 20'000; ms += 10) f.turn(at_ms(ms));
    CHECK(f.carrier.dials.size() == before);
    CHECK(f.bulk.wake_at() == never);
    CHECK(f.bulk.peers().empty());
    f.bulk.drop(peer);  // once more does nothing
}

TEST_CASE("a dial without an answer, and one that the carrier does not take, are failed dials",
          "[connections][P5]") {
    Fixture f;
    f.introduce(high, {1, 8}, peer, true, at_ms(0));
    f.turn(at_ms(2999));
    CHECK(f.carrier.dials.size() == 1);
    f.carrier.refuses = true;
    f.turn(at_ms(3000));
    f.turn(at_ms(3100));
    CHECK(f.carrier.dials.size() == 1);
    f.carrier.refuses = false;
    for (int ms = 3100; ms < 4500; ms += 10) f.turn(at_ms(ms));
    CHECK(f.carrier.dials.size() == 2);
}

TEST_CASE("a connection that is lost is redialled at once, a young one with back-off",
          "[connections][P5][P12]") {
    Fixture f;
    f.introduce(high, {1, 8}, peer, true, at_ms(0));
    f.carrier.close(f.answer(high, {1, 8}, at_ms(1), 3), at_ms(5), "not wanted");
    f.turn(at_ms(5));
    CHECK(f.carrier.dials.size() == 1);  // it lasted 4 ms
    CHECK(f.states.back().why == "not wanted");
    for (int ms = 5; ms < 100; ++ms) f.turn(at_ms(ms));
    REQUIRE(f.carrier.dials.size() == 2);
    f.carrier.close(f.answer(high, {1, 8}, at_ms(100), 5), at_ms(9000));
    f.turn(at_ms(9000));
    CHECK(f.carrier.dials.size() == 3);
    CHECK_FALSE(f.bulk.conn_of(peer));
    f.answer(high, {1, 8}, at_ms(9001), 7);
    CHECK(f.bulk.conn_of(peer));
    CHECK(f.states.back().up);
}

TEST_CASE("garbage closes", "[connections][P12]") {
    Fixture f;
    f.introduce(low, {1, 7}, peer, false, at_ms(0));
    const ConnectionId id = f.accept(low, {1, 7}, at_ms(0));
    f.bulk.on_garbage(peer, "a frame of kind 77");
    REQUIRE(f.is_closed(id));
    CHECK(f.carrier.conns.at(id).closed->first == Channels::close_garbage);
}

TEST_CASE("a connection that the peer dialled and that is silent here is made anew from here",
          "[connections][P12][P13]") {
    Fixture f;
    f.introduce(low, {1, 7}, peer, false, at_ms(0));
    const ConnectionId id = f.accept(low, {1, 7}, at_ms(0));
    f.carrier.close(id, at_ms(5000), "it is silent while transfers wait for it", Channels::close_silent,
                    false);
    f.turn(at_ms(5000));
    REQUIRE(f.carrier.dials.size() == 1);
    f.answer(low, {1, 7}, at_ms(5001), 5);
    CHECK(f.bulk.conn_of(peer));
}

// The peer may not know that it has ended, or its dials may not pass where ours do.
TEST_CASE("a connection that the peer dialled is dialled here when it has ended and the peer has not dialled",
          "[connections][P12]") {
    struct End {
        uint64_t code;
        bool by_peer;
        int patience;
    };
    constexpr uint64_t certificate_ended = 4;
    const End ends[] = {{0, false, 500},
                        {certificate_ended, false, 500},
                        {certificate_ended, true, 500},
                        {Channels::close_silent, true, 500},
                        {Channels::close_replaced, true, 500},
                        {Channels::close_refused, true, 3000},
                        {Channels::close_goodbye, true, 3000}};
    for (const End& end : ends)
        for (const bool redials : {true, false}) {
            CAPTURE(end.code, end.by_peer, redials);
            Fixture f;
            f.introduce(low, {1, 7}, peer, false, at_ms(0));
            const ConnectionId id = f.accept(low, {1, 7}, at_ms(0));
            f.carrier.close(id, at_ms(5000), "ended", end.code, end.by_peer);
            f.turn(at_ms(5000));
            if (redials) f.accept(low, {1, 7}, at_ms(5100), 5);
            f.turn(at_ms(5000 + end.patience - 1));
            CHECK(f.carrier.dials.empty());
            f.turn(at_ms(5000 + end.patience));
            CHECK(f.carrier.dials.size() == (redials ? 0 : 1));
            for (int ms = 8050; ms < 25'000; ms += 50) f.turn(at_ms(ms));
            CHECK((f.carrier.dials.size() > 3) == !redials);  // and again, as long as nothing answers
            f.bulk.drop(peer);
            const size_t dials = f.carrier.dials.size();
            for (int ms = 25'000; ms < 35'000; ms += 50) f.turn(at_ms(ms));
            CHECK(f.carrier.dials.size() == dials);
        }
}

TEST_CASE("who accepts dials an incarnation from which no connection has come in a while",
          "[connections][P12]") {
    for (const bool comes : {true, false}) {
        CAPTURE(comes);
        Fixture f;
        f.introduce(low, {1, 7}, peer, false, at_ms(0));
        f.accept(low, {1, 7}, at_ms(0));
        f.introduce(low, {2, 8}, later, false, at_ms(5000));
        for (int ms = 5500; ms < 8000; ms += 500) {
            f.turn(at_ms(ms));
            f.introduce(low, {2, 8}, later, false, at_ms(ms));  // each control connection of it
        }
        if (comes) f.accept(low, {2, 8}, at_ms(7999), 5);
        f.turn(at_ms(7999));
        CHECK(f.carrier.dials.empty());
        f.turn(at_ms(8000));
        for (int ms = 8000; ms < 10'000; ms += 50) f.turn(at_ms(ms));
        REQUIRE(f.carrier.dials.size() == (comes ? 0 : 1));
        if (!comes) f.answer(low, {2, 8}, at_ms(10'000), 5);
        CHECK(f.bulk.conn_of(later));
    }
}

TEST_CASE("while there is no connection its state has a reason", "[connections][P12]") {
    for (const bool dials : {true, false}) {
        CAPTURE(dials);
        Fixture f;
        f.introduce(dials ? high : low, {1, 7}, peer, dials, at_ms(0));
        REQUIRE(f.states.size() == 1);
        CHECK((!f.states[0].up && !f.states[0].carrier_why.empty()));
        f.introduce(dials ? high : low, {1, 7}, peer, dials, at_ms(1));
        for (int ms = 1; ms < 20'000; ms += 50) f.turn(at_ms(ms));
        CHECK(f.states.size() == 2);
        CHECK(f.states.back().carrier_why.ends_with("; quic: not answered at there:2"));
        f.accept(dials ? high : low, {1, 7}, at_ms(20'000), 9);
        CHECK(f.states.back().carrier_why == "tcp_bulk is off on this node");
    }
}

TEST_CASE("a dial that was given up is closed when it is answered late, or never opens",
          "[connections][P5]") {
    for (const bool answered : {true, false}) {
        CAPTURE(answered);
        Fixture f;
        f.introduce(high, {1, 8}, peer, true, at_ms(0));
        const ConnectionId late = f.carrier.dials.back().id;
        if (answered) f.carrier.connect(high, at_ms(2900), late);
        for (int ms = 2900; f.carrier.dials.size() == 1; ++ms) f.turn(at_ms(ms));
        CHECK(f.carrier.conns.contains(late) == answered);
        if (!answered) f.carrier.connect(high, at_ms(3500), late);
        f.turn(at_ms(3500));
        CHECK(f.is_closed(late) == !answered);  // the peer may have seen our preamble, and adopted it
        CHECK(f.carrier.conns.at(late).written.empty() == !answered);
        f.turn(at_ms(7901));
        CHECK(f.is_closed(late));
        f.carrier.close(late, at_ms(7902));
        int now = 7902;
        for (const size_t before = f.carrier.dials.size(); f.carrier.dials.size() == before; ++now)
            f.turn(at_ms(now));
        const ConnectionId id = f.answer(high, {1, 8}, at_ms(now));
        CHECK(f.bulk.conn_of(peer) == id);
    }
}

TEST_CASE("a dial in flight is not needed when the peer has dialled meanwhile", "[connections][P4]") {
    Fixture f;
    f.introduce(high, {1, 8}, peer, true, at_ms(0));
    const ConnectionId ours = f.carrier.dials.back().id;
    const ConnectionId theirs = f.accept(high, {1, 8}, at_ms(1), 2);
    REQUIRE(f.bulk.conn_of(peer) == theirs);
    f.carrier.connect(high, at_ms(2), ours);
    f.turn(at_ms(2));
    CHECK(f.is_closed(ours));
    CHECK(f.carrier.conns.at(ours).written.empty());
    CHECK(f.bulk.conn_of(peer) == theirs);
}

// It may show the certificate that was replaced, as its handshake may have been before.
TEST_CASE("a connection that the peer dialled is replaced, too, when it comes after a renewal",
          "[connections][P12]") {
    Fixture f;
    f.introduce(low, {1, 7}, peer, false, at_ms(0));
    f.accept(low, {1, 7}, at_ms(0));
    f.bulk.replace_all(at_ms(100));
    f.accept(low, {1, 7}, at_ms(103), 5);  // before the dial
    for (int ms = 104; ms < 120; ++ms) f.turn(at_ms(ms));
    REQUIRE(f.carrier.dials.size() == 1);
    const ConnectionId ours = f.answer(low, {1, 7}, at_ms(121), 9);
    CHECK(f.bulk.conn_of(peer) == ours);
    f.accept(low, {1, 7}, at_ms(130), 12);  // the peer was renewed, too
    for (int ms = 131; ms < 9000; ms += 10) f.turn(at_ms(ms));
    CHECK(f.carrier.dials.size() == 1);
}

TEST_CASE(
    "connections are replaced one after the other; a replacement that fails changes nothing, and is repeated",
    "[connections][P12]") {
    Fixture f;
    f.introduce(low, {1, 7}, peer, false, at_ms(0));
    f.introduce(high, {1, 8}, later, true, at_ms(0));
    const ConnectionId theirs = f.accept(low, {1, 7}, at_ms(0));
    const ConnectionId ours = f.answer(high, {1, 8}, at_ms(0));
    f.states.clear();
    f.bulk.replace_all(at_ms(100));
    f.turn(at_ms(105));
    REQUIRE(f.carrier.dials.size() == 2);
    const NodeId first = *f.carrier.dials.back().expected;
    f.carrier.close(f.carrier.dials.back().id, at_ms(106), "refused");
    f.turn(at_ms(110));
    REQUIRE(f.carrier.dials.size() == 3);
    const NodeId second = *f.carrier.dials.back().expected;
    CHECK(first != second);
    const ConnectionId replacement =
        f.answer(second, second == low ? Incarnation{1, 7} : Incarnation{1, 8}, at_ms(111), 9);
    CHECK(f.bulk.conn_of(second == low ? peer : later) == replacement);
    CHECK(f.is_closed(second == low ? theirs : ours));
    CHECK_FALSE(f.is_closed(second == low ? ours : theirs));
    const size_t downs = static_cast<size_t>(
        std::ranges::count_if(f.states, [](const BulkState& state) { return !state.up; }));
    CHECK(downs == 0);
    int ms = 111;
    for (; ms < 9000 && f.carrier.dials.size() == 3; ms += 10) f.turn(at_ms(ms));
    REQUIRE(f.carrier.dials.size() == 4);
    CHECK(*f.carrier.dials.back().expected == first);
    f.answer(first, first == low ? Incarnation{1, 7} : Incarnation{1, 8}, at_ms(ms), 12);
    for (; ms < 18'000; ms += 10) f.turn(at_ms(ms));
    CHECK(f.carrier.dials.size() == 4);
}

TEST_CASE("an asked connection answers with the acknowledgement of the question; others are not asked",
          "[connections][P13]") {
    Fixture f;
    f.introduce(low, {1, 7}, peer, false, at_ms(0));
    f.introduce(high, {1, 8}, later, true, at_ms(0));  // its dial is not answered
    const ConnectionId id = f.accept(low, {1, 7}, at_ms(0));
    const auto answers = [&] { return std::ranges::count_if(f.states, &BulkState::answers); };
    FakeCarrier::Conn& conn = f.carrier.conns.at(id);
    conn.acknowledged = conn.written.size() - 1;
    f.bulk.events().on_received(id);
    f.turn(at_ms(1));
    CHECK(answers() == 0);  // nobody has asked
    const size_t before = conn.written.size();
    f.bulk.ask_all();
    REQUIRE(conn.written.size() > before);
    f.bulk.events().on_received(id);  // the peer's own question: our way to it may be blocked all the same
    conn.acknowledged = before;       // what was sent before is no question
    f.turn(at_ms(2));
    CHECK(answers() == 0);
    conn.acknowledged = conn.written.size();
    f.turn(at_ms(3));
    f.turn(at_ms(4));
    REQUIRE(answers() == 1);
    CHECK((f.states.back().peer == peer && f.states.back().up));
}

}  // namespace
}  // namespace nexar::connections
