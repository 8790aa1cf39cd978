// Channels alone: what a connection costs before it is in use, generations, adoption, replacement.
#include "connections/channels.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cstring>

#include "fake_carrier.hpp"
#include "nodes.hpp"

namespace nexar::connections {
namespace {

const NodeId self = node_id(5), low = node_id(1), high = node_id(9);
constexpr link::PeerIndex peer{3};

struct Fixture {
    FakeCarrier carrier;
    link::Mesh mesh{link::MeshConfig{}};
    Channels channels{carrier, mesh, self, preamble_of({1, 1}, 0)};

    Fixture() { carrier.events = &channels; }
    ~Fixture() { channels.check_invariants(); }

    // A peer dials, and proposes this generation.
    std::pair<ConnectionId, FakeCarrier::Conn*> accept(const NodeId& node, uint32_t generation, Time now) {
        FakeCarrier::Conn& conn = carrier.connect(node, now);
        if (conn.receiver) conn.receive(preamble_of({1, 7}, generation));
        channels.check_invariants();
        return {carrier.last, &conn};
    }
    std::vector<Closed> closed() {
        std::vector<Closed> out;
        while (auto one = channels.poll_closed()) out.push_back(*one);
        return out;
    }
};

TEST_CASE("the acceptor answers with the proposed generation or more, and reports the connection",
          "[connections][P8]") {
    Fixture f;
    const uint32_t proposed = GENERATE(1u, 40u);
    const auto [id, conn] = f.accept(high, proposed, at_ms(0));
    CHECK(conn->is_held);
    const auto opened = f.channels.poll_opened();
    REQUIRE(opened);
    CHECK(opened->id == id);
    CHECK(opened->node == high);
    CHECK(opened->generation == std::max(proposed, 2u));
    CHECK(conn->preamble().generation == opened->generation);
    CHECK(opened->theirs.incarnation == Incarnation{1, 7});
    CHECK_FALSE(opened->we_dialled);
}

Preamble with(Capabilities capabilities) {
    Preamble out = preamble_of({1, 7}, 3);
    out.capabilities = capabilities;
    return out;
}

TEST_CASE("both ends use the highest version that both speak, and the features that both have",
          "[connections][V1][V2]") {
    constexpr uint64_t unknown = uint64_t{1} << 63;
    struct Case {
        Capabilities theirs;
        std::optional<Agreed> expected;
    };
    const uint64_t all = known_features();
    const Case cases[] = {
        {{2, 2, 0, all}, Agreed{2, all}}, {{2, 3, 0, all | unknown}, Agreed{2, all}},  // one ahead
        {{1, 2, 0, 0}, Agreed{2, 0}},                                                  // one behind
        {{3, 4, 0, all}, std::nullopt},   {{1, 1, 0, all}, std::nullopt},
    };
    for (const Case& c : cases) {
        Fixture f;
        f.carrier.connect(high, at_ms(0)).receive(with(c.theirs));
        const auto opened = f.channels.poll_opened();
        REQUIRE(opened);
        CHECK(opened->agreed == c.expected);
    }
}

TEST_CASE("the reason for no common version names both ranges and the older node", "[connections][V1]") {
    const std::string us = "node " + self.short_hex(), them = "node " + high.short_hex();
    Fixture f;
    f.carrier.connect(high, at_ms(0)).receive(with({3, 4, 0, 0}));
    CHECK(f.channels.no_common_version(*f.channels.poll_opened()) ==
          them + " speaks nexar/3 to nexar/4, " + us + " speaks nexar/2: upgrade " + us);
    f.carrier.connect(high, at_ms(0)).receive(with({1, 1, 0, 0}));
    CHECK(f.channels.no_common_version(*f.channels.poll_opened()) ==
          them + " speaks nexar/1, " + us + " speaks nexar/2: upgrade " + them);
}

TEST_CASE("of dials that cross the lower NodeId's has the higher generation", "[connections][P4][P8]") {
    for (const NodeId& other : {low, high}) {
        Fixture f;
        const auto dialled = f.channels.dial(at_ms(0), "there:1", other);
        REQUIRE(dialled);
        f.carrier.connect(other, at_ms(1), *dialled);
        const uint32_t ours = f.carrier.conns.at(*dialled).preamble().generation;
        const auto [id, conn] = f.accept(other, self < other ? 2 : 3, at_ms(1));
        const uint32_t theirs = conn->preamble().generation;
        CHECK((ours > theirs) == (self < other));
    }
}

TEST_CASE("two dials of one node that are both answered have different generations",
          "[connections][P4][P8]") {
    Fixture f;
    std::vector<uint32_t> generations;
    for (int i = 0; i < 3; ++i) {
        const auto id = f.channels.dial(at_ms(0), "there:1", high);
        REQUIRE(id);
        generations.push_back(f.carrier.connect(high, at_ms(1), *id).preamble().generation);
    }
    CHECK(generations[0] < generations[1]);
    CHECK(generations[1] < generations[2]);
    f.channels.forget(high);
    const auto id = f.channels.dial(at_ms(0), "there:1", high);
    CHECK(f.carrier.connect(high, at_ms(1), *id).preamble().generation == generations[0]);
}

TEST_CASE("a dial ends with its closing, connected or not", "[connections][P5]") {
    Fixture f;
    const auto unknown = f.channels.dial(at_ms(0), "seed:1", std::nullopt);
    const auto known = f.channels.dial(at_ms(0), "there:1", high);
    REQUIRE((unknown && known));
    CHECK(f.channels.remote_of(*unknown) == "seed:1");
    f.carrier.close(*unknown, at_ms(1), "no answer");
    f.carrier.connect(high, at_ms(1), *known);
    f.carrier.close(*known, at_ms(2));
    const auto closed = f.closed();
    REQUIRE(closed.size() == 2);
    CHECK(closed[0].node.is_zero());
    CHECK(closed[0].why.reason == "no answer");
    CHECK(closed[1].node == high);
    CHECK((closed[1].we_dialled && !closed[1].peer));
    f.carrier.refuses = true;
    CHECK_FALSE(f.channels.dial(at_ms(3), "via:x", high));
    f.carrier.close(ConnectionId{77}, at_ms(3));  // never was
    CHECK(f.closed().empty());
}

TEST_CASE("one node has few unidentified connections, and an ended or accepted one makes room",
          "[connections][P9][H10]") {
    Fixture f;
    std::vector<ConnectionId> ids;
    for (size_t i = 0; i < Channels::opening_per_node_max; ++i)
        ids.push_back(f.accept(high, static_cast<uint32_t>(10 + i), at_ms(0)).first);
    auto* refused = f.accept(high, 20, at_ms(0)).second;
    REQUIRE(refused->closed);
    CHECK(refused->closed->first == Channels::close_refused);
    CHECK_FALSE(refused->receiver);
    CHECK_FALSE(f.accept(low, 3, at_ms(0)).second->closed);  // another node has its own
    f.carrier.close(ids[0], at_ms(1));
    CHECK_FALSE(f.accept(high, 21, at_ms(1)).second->closed);
    REQUIRE(f.channels.adopt(ids[1], peer));
    CHECK_FALSE(f.accept(high, 22, at_ms(1)).second->closed);
    CHECK(f.accept(high, 23, at_ms(1)).second->closed);
}

TEST_CASE("an unidentified connection has its time, and the code says what it did not do",
          "[connections][P9][H10]") {
    Fixture f;
    FakeCarrier::Conn& mute = f.carrier.connect(high, at_ms(0));
    const auto [waits_id, waits] = f.accept(high, 3, at_ms(10));
    const auto [used_id, used] = f.accept(low, 3, at_ms(20));
    REQUIRE(f.channels.adopt(used_id, peer));
    CHECK(f.channels.wake_at() == at_ms(5000));
    f.channels.on_time(at_ms(4999));
    CHECK_FALSE(mute.closed);
    f.channels.on_time(at_ms(5000));
    REQUIRE(mute.closed);
    CHECK(mute.closed->first == Channels::close_garbage);
    f.channels.on_time(at_ms(5010));
    REQUIRE(waits->closed);
    CHECK(waits->closed->first == Channels::close_refused);
    f.channels.on_time(at_ms(9000));
    CHECK_FALSE(used->closed);
    CHECK(f.channels.wake_at() == never);
}

TEST_CASE("what does not begin with a preamble is closed, and what follows is ignored", "[connections][P9]") {
    Fixture f;
    FakeCarrier::Conn& conn = f.carrier.connect(high, at_ms(0));
    const std::string text = "GET / HTTP/1.1 and so on, 32 bytes and more";
    conn.receive(std::as_bytes(std::span(text)));
    REQUIRE(conn.closed);
    CHECK(conn.closed->first == Channels::close_garbage);
    conn.receive(preamble_of({1, 7}, 3));
    CHECK_FALSE(f.channels.poll_opened());
    CHECK_FALSE(f.channels.adopt(f.carrier.last, peer));
}

TEST_CASE("an accepted connection switches, gets its credit, and carries the mesh", "[connections]") {
    Fixture f;
    const auto [id, conn] = f.accept(high, 3, at_ms(0));
    const size_t before = conn->written.size();
    f.channels.greet(id, std::as_bytes(std::span("hello", 5)));
    CHECK(conn->written.size() == before + 9);
    REQUIRE(f.channels.adopt(id, peer));
    CHECK(conn->written.size() == before + 13);  // the switch
    CHECK_FALSE(f.channels.adopt(id, peer));     // only once
    CHECK(conn->is_held);                        // the peer has not switched
    conn->receive_greeting(wire::Heartbeat{});
    conn->receive_length(0);
    CHECK_FALSE(conn->is_held);
    CHECK(f.channels.poll_greeting()->first == id);
    CHECK(f.channels.peer_of(id) == peer);
    CHECK(f.channels.conn_of(peer) == id);
    f.channels.greet(id, std::as_bytes(std::span("late", 4)));  // not any more
    CHECK(conn->written.size() == before + 13);

    REQUIRE(f.mesh.send_message(peer, std::as_bytes(std::span("message", 7))));
    f.mesh.flush();
    CHECK(f.channels.poll_written() == peer);  // once for any number of writes
    CHECK_FALSE(f.channels.poll_written());
    REQUIRE(f.mesh.send_message(peer, std::as_bytes(std::span("message", 7))));
    f.mesh.flush();
    CHECK(f.channels.poll_written() == peer);

    conn->round_trip = Duration(700);
    f.channels.on_received(id);
    CHECK(f.channels.poll_received()->rtt == Duration(700));
    f.channels.on_room(id);
    f.channels.on_received(ConnectionId{99});
    f.channels.on_room(ConnectionId{99});
    CHECK_FALSE(f.channels.poll_received());
    f.carrier.close(id, at_ms(5));
    const auto closed = f.closed();
    REQUIRE(closed.size() == 1);
    CHECK(closed[0].peer == peer);
    CHECK(closed[0].rtt == Duration(700));
    CHECK_FALSE(f.mesh.send_message(peer, std::as_bytes(std::span("nobody", 6))));
}

TEST_CASE("a connection with a higher generation replaces, one with a lower or the same is closed",
          "[connections][P4]") {
    Fixture f;
    const auto [old_id, old_conn] = f.accept(high, 4, at_ms(0));
    const auto [new_id, new_conn] = f.accept(high, 6, at_ms(0));
    const auto [late_id, late_conn] = f.accept(high, 5, at_ms(0));
    REQUIRE(f.channels.adopt(old_id, peer));
    REQUIRE(f.channels.adopt(new_id, peer));
    REQUIRE(old_conn->closed);
    CHECK(old_conn->closed->first == Channels::close_replaced);
    CHECK_FALSE(f.channels.adopt(late_id, peer));
    REQUIRE(late_conn->closed);
    CHECK(f.channels.conn_of(peer) == new_id);
    f.carrier.close(old_id, at_ms(1));
    CHECK(f.channels.conn_of(peer) == new_id);
    CHECK_FALSE(f.closed().at(0).peer);
    f.channels.close(peer, Channels::close_goodbye, "leaving");
    REQUIRE(new_conn->closed);
    CHECK(new_conn->closed->second == "leaving");
    f.carrier.close(new_id, at_ms(2));
    CHECK(f.accept(high, 1, at_ms(3)).second->preamble().generation > 6);
    f.channels.forget(high);
    CHECK(f.accept(high, 1, at_ms(3)).second->preamble().generation < 6);
}

}  // namespace
}  // namespace nexar::connections
