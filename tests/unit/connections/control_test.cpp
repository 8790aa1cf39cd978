// Control connections: the peer table and its channels as one machine, from a dial to the end of an
// incarnation.
#include "connections/control.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "fake_carrier.hpp"
#include "nodes.hpp"

namespace nexar::connections {
namespace {

const NodeId self = node_id(5), low = node_id(1), high = node_id(9);

PeerTableConfig config(std::vector<std::string> seeds = {}) {
    PeerTableConfig out;
    out.self = {self, "me", {"me:1"}};
    out.incarnation = {1, 1};
    out.seeds = std::move(seeds);
    return out;
}
wire::Hello hello_of(const NodeId& node, Incarnation incarnation) {
    wire::Hello hello;
    hello.node = node;
    hello.self = {node, "host", {"there:1"}};
    hello.incarnation = incarnation;
    return hello;
}

struct Fixture {
    FakeCarrier carrier;
    link::Mesh mesh{link::MeshConfig{}};
    ControlConnections control;
    std::vector<PeerIsUp> ups;
    std::vector<PeerIsDown> downs;
    std::vector<Note> notes;
    size_t redials_failed = 0;

    explicit Fixture(std::vector<std::string> seeds = {})
        : control(config(std::move(seeds)), carrier, mesh, 7, at_ms(0)) {
        carrier.events = &control.events();
    }
    void turn(Time now) {
        control.on_time(now);
        control.check_invariants();
        while (const auto event = control.poll_event()) {
            if (const auto* up = std::get_if<PeerIsUp>(&*event)) ups.push_back(*up);
            if (const auto* down = std::get_if<PeerIsDown>(&*event)) downs.push_back(*down);
            if (const auto* note = std::get_if<Note>(&*event)) notes.push_back(*note);
            if (std::holds_alternative<RedialFailed>(*event)) ++redials_failed;
        }
    }
    // A node dials and sends its hello.
    ConnectionId accept(const NodeId& node, Incarnation incarnation, Time now, uint32_t generation = 3) {
        FakeCarrier::Conn& conn = carrier.connect(node, now);
        conn.receive(preamble_of(incarnation, generation));
        conn.receive_greeting(hello_of(node, incarnation));
        turn(now);
        return carrier.last;
    }
};

TEST_CASE("a seed is dialled, its node is admitted, and a goodbye ends its incarnation",
          "[connections][P1][P5]") {
    Fixture f({"seed:1"});
    f.turn(at_ms(0));
    REQUIRE(f.carrier.dials.size() == 1);
    CHECK(f.carrier.dials[0].address == "seed:1");
    CHECK_FALSE(f.carrier.dials[0].expected);
    const ConnectionId id = f.carrier.dials[0].id;
    FakeCarrier::Conn& conn = f.carrier.connect(high, at_ms(1), id);
    conn.receive(preamble_of({1, 7}, 3));
    f.turn(at_ms(1));
    CHECK(conn.written.size() > sizeof(Preamble));  // our hello
    CHECK(f.ups.empty());
    conn.receive_greeting(hello_of(high, {1, 7}));
    f.turn(at_ms(2));
    REQUIRE(f.ups.size() == 1);
    CHECK(f.ups[0].remote == "seed:1");
    const PeerIndex peer = f.ups[0].info.peer;
    CHECK(f.control.conn_of(peer) == id);

    CHECK_FALSE(f.control.on_message(peer, wire::Heartbeat{}, at_ms(3)));
    CHECK(f.control.on_message(peer, wire::Goodbye{"maintenance"}, at_ms(3)));
    CHECK(f.control.poll_event());  // at once: its close may share a datagram
    REQUIRE(conn.closed);
    CHECK_FALSE(f.control.on_message(PeerIndex{88}, wire::Goodbye{"x"}, at_ms(3)));
    f.carrier.close(id, at_ms(4));
    f.turn(at_ms(4));
    CHECK_FALSE(f.control.table().info_of(high));
    CHECK(f.control.table().roster().size() == 1);  // it is still known, for a while
}

TEST_CASE(
    "a connection that its peer closes with the code of a goodbye proves the end, another close does not",
    "[connections][P5]") {
    struct Close {
        uint64_t code;
        bool by_peer;
    };
    // A code of the transport's own numbers, or of this node's, may be any number.
    const Close close = GENERATE(Close{Channels::close_goodbye, true}, Close{Channels::close_refused, true},
                                 Close{Channels::close_goodbye, false});
    const bool goodbye = close.by_peer && close.code == Channels::close_goodbye;
    Fixture f;
    const ConnectionId id = f.accept(high, {1, 7}, at_ms(0));
    REQUIRE(f.ups.size() == 1);
    f.carrier.close(id, at_ms(5), "stopping", close.code, close.by_peer);
    f.turn(at_ms(5));
    REQUIRE(f.downs.size() == 1);
    CHECK(f.downs[0].proof == goodbye);
    CHECK((f.control.table().info_of(high) != nullptr) == !goodbye);

    // Before its hello nobody is known to have left.
    f.carrier.connect(low, at_ms(6)).receive(preamble_of({1, 7}, 3));
    f.turn(at_ms(6));
    f.carrier.close(f.carrier.last, at_ms(7), "stopping", Channels::close_goodbye);
    f.turn(at_ms(7));
    CHECK(f.downs.size() == 1);
    CHECK(f.notes.empty());
}

TEST_CASE("a connection that breaks the rules of its opening is closed, and nobody is admitted",
          "[connections][P1][P9]") {
    Fixture f;
    FakeCarrier::Conn& conn = f.carrier.connect(high, at_ms(0));
    uint64_t expected = Channels::close_refused;
    SECTION("it is a bulk connection") {
        conn.receive(preamble_of({1, 7}, 3, Purpose::bulk));
    }
    SECTION("its greeting is no message") {
        conn.receive(preamble_of({1, 7}, 3));
        conn.receive_length(5);
        conn.receive(std::as_bytes(std::span("\xff\xff\xff\xff\xff", 5)));
        expected = Channels::close_garbage;
    }
    SECTION("its hello is of another incarnation than its preamble") {
        conn.receive(preamble_of({2, 8}, 3));
        conn.receive_greeting(hello_of(high, {1, 7}));
    }
    SECTION("its hello does not come") {
        conn.receive(preamble_of({1, 7}, 3));
        f.turn(at_ms(0));
        CHECK(f.control.wake_at() <= at_ms(3000));
        f.turn(at_ms(3000));
    }
    f.turn(at_ms(3001));
    REQUIRE(conn.closed);
    CHECK(conn.closed->first == expected);
    CHECK(f.ups.empty());
    f.carrier.close(f.carrier.last, at_ms(3002));
    f.turn(at_ms(3002));
}

TEST_CASE("a node without a common version is refused on both ends, before its hello, with both ranges",
          "[connections][V1]") {
    Fixture f({"seed:1"});
    f.turn(at_ms(0));
    Preamble ahead = preamble_of({1, 7}, 3);
    ahead.capabilities = {3, 4, 0, 0};
    const bool dialled = GENERATE(true, false);
    const ConnectionId id = dialled ? f.carrier.dials[0].id : ConnectionId(77);
    FakeCarrier::Conn& conn = f.carrier.connect(high, at_ms(1), dialled ? std::optional(id) : std::nullopt);
    conn.receive(ahead);
    conn.receive_greeting(hello_of(high, {1, 7}));
    f.turn(at_ms(1));
    REQUIRE(conn.closed);
    CHECK(conn.closed->first == Channels::close_refused);
    const std::string why = conn.closed->second;
    CHECK(why.find("speaks nexar/3 to nexar/4, ") != std::string::npos);
    CHECK(why.find("speaks nexar/2: upgrade node " + self.short_hex()) != std::string::npos);
    REQUIRE_FALSE(f.notes.empty());
    CHECK(f.notes.back().event == "peer_refused");
    f.carrier.close(f.carrier.last, at_ms(2), why);
    f.turn(at_ms(2));
    CHECK(f.ups.empty());
    CHECK((f.notes.back().event == "dial_failed") == dialled);
    CHECK(f.control.wake_at() < at_ms(5000));  // its seed is dialled again: it may have been upgraded
}

TEST_CASE("a peer of which one knows more features is used with those of both", "[connections][V1][V2]") {
    Fixture f;
    FakeCarrier::Conn& conn = f.carrier.connect(high, at_ms(0));
    Preamble ahead = preamble_of({1, 7}, 3);
    ahead.capabilities = {2, 3, 0, known_features() | uint64_t{1} << 63};
    conn.receive(ahead);
    conn.receive_greeting(hello_of(high, {1, 7}));
    f.turn(at_ms(0));
    REQUIRE(f.ups.size() == 1);
    CHECK(f.ups[0].info.agreed == Agreed{2, known_features()});
}

TEST_CASE("a peer that sends garbage is closed, and dialled again", "[connections][P5]") {
    Fixture f;
    const ConnectionId id = f.accept(high, {1, 7}, at_ms(0));
    REQUIRE(f.ups.size() == 1);
    f.control.on_garbage(f.ups[0].info.peer, "a frame of kind 77");
    REQUIRE(f.carrier.conns.at(id).closed);
    CHECK(f.carrier.conns.at(id).closed->first == Channels::close_garbage);
    f.carrier.close(id, at_ms(5000));
    f.turn(at_ms(5000));
    REQUIRE(f.downs.size() == 1);
    CHECK_FALSE(f.downs[0].proof);
    REQUIRE(f.carrier.dials.size() == 1);
    CHECK(f.carrier.dials[0].expected == high);
}

TEST_CASE("a lost peer is redialled at its round trip's pace, and each failure is reported",
          "[connections][P5][F1]") {
    Fixture f;
    const ConnectionId id = f.accept(high, {1, 7}, at_ms(0));
    f.carrier.conns.at(id).round_trip = Duration(30'000'000);
    f.control.events().on_received(id);
    f.control.on_time(at_ms(5000));
    const auto received = f.control.poll_event();
    REQUIRE(received);
    CHECK(std::get<PeerReceived>(*received).rtt == Duration(30'000'000));
    f.carrier.close(id, at_ms(5000));
    f.turn(at_ms(5000));
    std::vector<Time> dialled;
    for (int ms = 5000; ms < 5300; ++ms) {
        const size_t before = f.carrier.dials.size();
        f.turn(at_ms(ms));
        if (f.carrier.dials.size() == before && ms > 5000) continue;
        dialled.push_back(at_ms(ms));
        f.carrier.close(f.carrier.dials.back().id, at_ms(ms), "refused");
        f.turn(at_ms(ms));
    }
    REQUIRE(dialled.size() >= 3);
    CHECK(dialled[1] - dialled[0] == Duration(90'000'000));
    CHECK(f.redials_failed >= 3);
    CHECK(f.control.dial_failure(high) == "closed by the peer: refused");
    f.accept(high, {1, 7}, at_ms(6000), 9);
    CHECK(f.control.dial_failure(high).empty());
    CHECK(f.ups.back().info.peer == f.ups.front().info.peer);  // the same incarnation
}

TEST_CASE("an address that the carrier does not take is a failed dial", "[connections][P5]") {
    Fixture f({"nonsense"});
    f.carrier.refuses = true;
    for (int ms = 0; ms < 10'000; ms += 100) f.turn(at_ms(ms));
    CHECK(f.notes.size() >= 5);
    CHECK(f.notes.size() <= 12);  // it backs off
    CHECK(f.notes[0].event == "dial_failed");
}

TEST_CASE("a later incarnation waits until the old one has not answered, then takes its place",
          "[connections][P3]") {
    Fixture f;
    const ConnectionId old = f.accept(high, {1, 7}, at_ms(0));
    const ConnectionId newcomer = f.accept(high, {2, 8}, at_ms(4000), 5);
    CHECK(f.ups.size() == 1);
    SECTION("it does not answer") {
        f.turn(at_ms(4300));
    }
    SECTION("its connection closes") {
        f.carrier.close(old, at_ms(4100));
        f.turn(at_ms(4100));
    }
    REQUIRE(f.ups.size() == 2);
    CHECK(f.ups[1].info.peer != f.ups[0].info.peer);
    CHECK(f.control.conn_of(f.ups[1].info.peer) == newcomer);
    REQUIRE_FALSE(f.downs.empty());
    CHECK(f.downs.back().proof);
    CHECK(f.downs.back().peer == f.ups[0].info.peer);
}

TEST_CASE("connections are replaced beside the ones in use, within the given time", "[connections]") {
    Fixture f;
    f.accept(low, {1, 7}, at_ms(0));
    f.accept(high, {1, 9}, at_ms(0));
    f.control.replace_all(at_ms(10), Duration(2'000'000'000));
    f.turn(at_ms(900));
    CHECK(f.carrier.dials.empty());
    f.turn(at_ms(3010));
    REQUIRE(f.carrier.dials.size() == 2);
    CHECK(f.downs.empty());
    // One is answered, the other is not: the old connection goes on.
    const auto [first, second] = std::pair(f.carrier.dials[0], f.carrier.dials[1]);
    const Incarnation incarnation = *first.expected == low ? Incarnation{1, 7} : Incarnation{1, 9};
    FakeCarrier::Conn& conn = f.carrier.connect(*first.expected, at_ms(3020), first.id);
    conn.receive(preamble_of(incarnation, 9));
    conn.receive_greeting(hello_of(*first.expected, incarnation));
    f.carrier.close(second.id, at_ms(3020));
    f.turn(at_ms(3020));
    CHECK(f.control.table().connection_of(*first.expected) == first.id);
    CHECK(f.control.table().connected().size() == 2);
    CHECK(f.downs.empty());
    for (int ms = 3020; ms < 20'000; ms += 50) f.turn(at_ms(ms));
    CHECK(f.carrier.dials.size() == 2);
}

TEST_CASE("a message goes to a node in use, to another it is dropped; a stopping node dials no more",
          "[connections]") {
    Fixture f({"seed:1"});
    const ConnectionId id = f.accept(high, {1, 7}, at_ms(0));
    f.turn(at_ms(0));
    const size_t before = f.carrier.conns.at(id).written.size(), dials = f.carrier.dials.size();
    f.control.send(low, wire::Heartbeat{});
    f.control.send(high, wire::Heartbeat{});
    f.mesh.flush();
    CHECK(f.carrier.conns.at(id).written.size() > before);
    CHECK(f.control.poll_sent());
    f.control.say_goodbye("stopping");
    for (int ms = 1; ms < 9000; ms += 100) f.turn(at_ms(ms));
    CHECK(f.carrier.dials.size() == dials);
    f.accept(low, {1, 7}, at_ms(9000));
    CHECK(f.ups.size() == 1);
}

}  // namespace
}  // namespace nexar::connections
