// Which carrier a bulk connection has: TCP first, QUIC where it fails, and back.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "bulk_fixture.hpp"

namespace nexar::connections {
namespace {

using Fixture = BulkFixture;

TEST_CASE("TCP is dialled first, and QUIC only when it has not answered in a moment", "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    CHECK(f.tcp.dials.size() == 1);
    CHECK(f.quic.dials.empty());
    const ConnectionId id = f.answer(f.tcp, 2);
    CHECK(f.bulk.conn_of(peer) == id);
    CHECK(f.states.back().carrier == CarrierKind::tcp);
    for (int ms = 3; ms < 9000; ms += 10) f.turn(ms);
    CHECK(f.quic.dials.empty());
    CHECK(f.tcp.dials.size() == 1);

    Fixture g;
    g.introduce(0);
    g.turn(199);
    CHECK(g.quic.dials.empty());
    g.turn(200);
    REQUIRE(g.quic.dials.size() == 1);
    g.answer(g.quic, 201);
    CHECK(g.states.back().carrier == CarrierKind::quic);
    CHECK(g.states.back().carrier_why == "tcp has not answered yet at there:2");
    const ConnectionId tcp = g.answer(g.tcp, 900);  // moved to when it stands
    CHECK(g.bulk.conn_of(peer) == tcp);
    CHECK(g.states.back().carrier == CarrierKind::tcp);
    CHECK(g.states.back().carrier_why.empty());
}

TEST_CASE("a peer without TCP is not dialled over it", "[connections][B6]") {
    Fixture f;
    f.introduce(0, false);
    CHECK(f.tcp.dials.empty());
    REQUIRE(f.quic.dials.size() == 1);
    f.answer(f.quic, 1);
    CHECK(f.states.back().carrier_why == "the other node carries no bulk data over TCP");
}

TEST_CASE("where TCP is refused QUIC is dialled at once, and TCP again after pauses that grow",
          "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.refuse(f.tcp, 1, "tcp refused");
    REQUIRE(f.quic.dials.size() == 1);
    f.answer(f.quic, 2);
    CHECK(f.states.back().carrier_why == "tcp refused at there:2");
    std::vector<int> dialled;
    for (int ms = 3; ms < 60'000; ms += 10) {
        const size_t before = f.tcp.dials.size();
        f.turn(ms);
        if (f.tcp.dials.size() == before) continue;
        dialled.push_back(ms);
        f.refuse(f.tcp, ms, "tcp refused");
    }
    REQUIRE(dialled.size() >= 6);
    CHECK(dialled.size() <= 16);
    CHECK(dialled.front() <= 500);
    CHECK(dialled.back() - dialled[dialled.size() - 2] >= 7000);
    CHECK(f.quic.dials.size() == 1);
}

TEST_CASE("a new control connection does not end the pause before the next dial over TCP",
          "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.refuse(f.tcp, 1, "tcp refused");
    f.answer(f.quic, 2);
    int now = 2;
    for (size_t failed = 1; failed < 5; ++now) {
        const size_t before = f.tcp.dials.size();
        f.turn(now);
        if (f.tcp.dials.size() == before) continue;
        f.refuse(f.tcp, now, "tcp refused");
        ++failed;
    }
    const size_t dials = f.tcp.dials.size();
    for (int ms = now; ms < now + 2000; ms += 100) f.introduce(ms);
    CHECK(f.tcp.dials.size() == dials);
    // QUIC waits for no dial over TCP that is not made.
    f.quic.close(*f.bulk.conn_of(peer), at_ms(now + 2000), "cut");
    f.turn(now + 2000);
    f.introduce(now + 2001);
    CHECK(f.quic.dials.size() == 2);
    CHECK(f.tcp.dials.size() == dials);
    // To another address another path leads.
    f.introduce(now + 2002, true, "elsewhere:2");
    CHECK(f.tcp.dials.size() == dials + 1);
}

TEST_CASE("while QUIC does not carry either, TCP is dialled as often as QUIC is", "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.refuse(f.tcp, 1, "tcp refused");
    const ConnectionId quic = f.answer(f.quic, 2);
    int now = f.refuse_tcp(2);
    f.quic.close(quic, at_ms(now), "cut");
    const size_t dials = f.tcp.dials.size();
    size_t quic_dials = f.quic.dials.size();
    for (const int end = now + 6000; now < end; now += 10) {
        f.turn(now);
        if (f.quic.dials.size() > quic_dials) f.refuse(f.quic, now, "no answer");
        quic_dials = f.quic.dials.size();
    }
    CHECK(f.tcp.dials.size() > dials);
    f.answer(f.tcp, now);
    CHECK(f.states.back().carrier == CarrierKind::tcp);
}

TEST_CASE("TCP is dialled at once when QUIC has fallen silent, whatever its pause is",
          "[connections][B8][P13]") {
    for (const bool silent : {true, false}) {
        CAPTURE(silent);
        Fixture f;
        f.introduce(0);
        f.refuse(f.tcp, 1, "tcp refused");
        const ConnectionId quic = f.answer(f.quic, 2);
        const int now = f.refuse_tcp(2);
        const size_t dials = f.tcp.dials.size();
        f.quic.close(quic, at_ms(now), "it is silent while transfers wait for it",
                     silent ? Channels::close_silent : 0, false);
        f.turn(now);
        CHECK(f.tcp.dials.size() == dials + (silent ? 1 : 0));
        CHECK(f.quic.dials.size() == 2);
    }
}

TEST_CASE("a TCP connection that broke is dialled again at once; one that broke soon leaves it to QUIC",
          "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    const ConnectionId first = f.answer(f.tcp, 1);
    f.tcp.close(first, at_ms(5000), "cut");
    f.turn(5000);
    CHECK(f.tcp.dials.size() == 2);
    CHECK(f.quic.dials.empty());
    const ConnectionId second = f.answer(f.tcp, 5001);
    f.tcp.close(second, at_ms(5100), "cut");
    f.turn(5100);
    CHECK(f.tcp.dials.size() == 2);
    REQUIRE(f.quic.dials.size() == 1);
    f.answer(f.quic, 5101);
    CHECK(f.states.back().carrier_why.starts_with("tcp broke at there:2"));
}

TEST_CASE("a TCP connection that was found silent leaves it to QUIC", "[connections][B8][P13]") {
    Fixture f;
    f.introduce(0);
    const ConnectionId id = f.answer(f.tcp, 1);
    f.tcp.close(id, at_ms(9000), "it is silent while transfers wait for it", Channels::close_silent, false);
    f.turn(9000);
    REQUIRE(f.quic.dials.size() == 1);
    CHECK(f.tcp.dials.size() == 1);
    f.answer(f.quic, 9001);
    CHECK(f.states.back().carrier_why == "tcp stalled at there:2");
}

TEST_CASE("a TCP connection that broke while transfers waited and nothing came has stalled",
          "[connections][B8][P13]") {
    for (const bool silent : {true, false}) {
        CAPTURE(silent);
        Fixture f;
        f.introduce(0);
        const ConnectionId id = f.answer(f.tcp, 1);
        f.wait_for_peer(1000);
        for (int ms = 1000; ms <= 5200; ms += 100) {
            if (!silent) f.bulk.events().on_received(id);  // a late rank's node
            f.turn(ms);
        }
        f.tcp.close(id, at_ms(5250), "Connection reset by peer");
        f.turn(5250);
        CHECK(f.quic.dials.size() == (silent ? 1 : 0));
        CHECK(f.tcp.dials.size() == (silent ? 1 : 2));
    }
}

TEST_CASE("a TCP connection that answers and moves no bulk data leaves it to QUIC, for longer each time",
          "[connections][B8][P13]") {
    Fixture f;
    f.introduce(0);
    ConnectionId id = f.answer(f.tcp, 1);
    f.wait_for_peer(2);
    int now = 2, last = 0;
    for (int round = 0; round < 5; ++round) {
        f.tcp.conns.at(id).bulk = {1 << 20, 40'000};
        const int closed = f.crawl(id, now, now + 10'000);
        REQUIRE(closed > now + 4500);
        CHECK(f.tcp.conns.at(id).closed->first == Channels::close_silent);
        const size_t dials = f.tcp.dials.size(), quic_dials = f.quic.dials.size();
        f.tcp.close(id, at_ms(closed), "closed here", Channels::close_silent, false);
        f.turn(closed);
        REQUIRE(f.quic.dials.size() == quic_dials + 1);
        const ConnectionId over_quic = f.answer(f.quic, closed + 1);
        f.quic.conns.at(over_quic).bulk = {1 << 20, 0};  // QUIC is judged by its packets
        for (now = closed + 2; f.tcp.dials.size() == dials; now += 10) {
            f.bulk.events().on_received(over_quic);
            f.turn(now);
            REQUIRE(now < closed + 11'000);
        }
        CHECK(now - closed >= 250);
        CHECK(now - closed > last);
        last = now - closed;
        id = f.answer(f.tcp, now);
    }
    CHECK(last >= 3000);
    // One that carried for long forgives what was before.
    f.tcp.conns.at(id).bulk = {4 << 20, 4 << 20};
    CHECK(f.crawl(id, now, now + 12'000) == -1);
    now += 12'000;
    f.tcp.close(id, at_ms(now), "closed here", Channels::close_silent, false);
    f.turn(now);
    const size_t dials = f.tcp.dials.size();
    f.turn(now + 320);
    CHECK(f.tcp.dials.size() == dials + 1);
}

TEST_CASE("a TCP connection to a late rank owes nothing and stays", "[connections][B8][P13]") {
    Fixture f;
    f.introduce(0);
    const ConnectionId id = f.answer(f.tcp, 1);
    f.wait_for_peer(2);
    CHECK(f.crawl(id, 2, 60'000) == -1);
    CHECK(f.quic.dials.empty());
    CHECK(f.states.size() == 2);  // introduced, up
}

TEST_CASE("who is cut off reads which protocol carried", "[connections][P13]") {
    Fixture f;
    f.introduce(0);
    f.answer(f.tcp, 1);
    f.wait_for_peer(2);
    for (int ms = 2; ms < 12'000; ms += 100) f.turn(ms);
    REQUIRE_FALSE(f.states.back().cut_off.empty());
    CHECK(f.states.back().why.find("(TCP there:2)") != std::string::npos);
}

TEST_CASE("a dial over QUIC that TCP has overtaken is closed before the peer has seen a preamble",
          "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.turn(200);
    REQUIRE(f.quic.dials.size() == 1);
    const ConnectionId tcp = f.answer(f.tcp, 201);
    const ConnectionId late = f.quic.dials.back().id;
    FakeCarrier::Conn& conn = f.quic.connect(high, at_ms(202), late);
    f.turn(202);
    CHECK(conn.closed);
    CHECK(conn.written.empty());
    CHECK(f.bulk.conn_of(peer) == tcp);
    f.quic.close(late, at_ms(203));
    f.turn(203);
    CHECK(f.bulk.conn_of(peer) == tcp);
}

TEST_CASE("a peer that has moved to TCP a moment before is not dialled over QUIC again",
          "[connections][B8]") {
    for (const bool comes : {true, false}) {
        CAPTURE(comes);
        Fixture f;
        f.introduce(0);
        f.refuse(f.tcp, 1, "tcp refused");
        const ConnectionId quic = f.answer(f.quic, 2);
        int now = 3;
        while (now < 1500) f.turn(now++);
        REQUIRE(f.tcp.dials.size() == 2);
        // The peer has adopted that connection and closes this one, which is seen here first.
        f.quic.close(quic, at_ms(now), "another connection of the same two nodes is kept",
                     Channels::close_replaced);
        f.turn(now);
        CHECK(f.quic.dials.size() == 1);
        if (comes) f.answer(f.tcp, now + 1);
        f.turn(now + 201);
        CHECK(f.quic.dials.size() == (comes ? 1 : 2));
        if (comes) CHECK(f.states.back().carrier == CarrierKind::tcp);
    }
}

TEST_CASE("a renewed certificate replaces a TCP connection by another one", "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    const ConnectionId before = f.answer(f.tcp, 1);
    f.bulk.replace_all(at_ms(100));
    f.turn(110);
    REQUIRE(f.tcp.dials.size() == 2);
    CHECK(f.bulk.conn_of(peer) == before);
    const ConnectionId after = f.answer(f.tcp, 111);
    CHECK(f.bulk.conn_of(peer) == after);
    CHECK(f.tcp.conns.at(before).closed);
    CHECK(f.quic.dials.empty());
    CHECK(std::ranges::all_of(f.states.begin() + 1, f.states.end(), &BulkState::up));
}

TEST_CASE("a replacement over TCP that fails is repeated, and the connection in use goes on",
          "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    const ConnectionId before = f.answer(f.tcp, 1);
    f.bulk.replace_all(at_ms(100));
    int now = 110;
    for (size_t failed = 2; failed < 5; ++failed) {
        for (; f.tcp.dials.size() < failed; ++now) f.turn(now);
        f.refuse(f.tcp, now, "tcp refused");
        CHECK(f.bulk.conn_of(peer) == before);
    }
    for (; f.tcp.dials.size() < 5; ++now) f.turn(now);
    const ConnectionId after = f.answer(f.tcp, now);
    CHECK(f.bulk.conn_of(peer) == after);
    for (const int end = now + 12'000; now < end; ++now) f.turn(now);
    CHECK(f.tcp.dials.size() == 5);
    CHECK(f.quic.dials.empty());
}

// Its handshake has shown the certificate that was replaced meanwhile.
TEST_CASE("a connection whose dial was in flight at a renewal is replaced, too", "[connections][B8][P12]") {
    for (const bool is_first : {true, false}) {
        CAPTURE(is_first);
        Fixture f;
        f.introduce(0);
        int now = 1;
        if (!is_first) {
            f.refuse(f.tcp, 1, "tcp refused");
            f.answer(f.quic, 2);
            for (now = 3; f.tcp.dials.size() < 2; ++now) f.turn(now);
        }
        const size_t dials = f.tcp.dials.size();
        f.bulk.replace_all(at_ms(now));
        const ConnectionId old = f.answer(f.tcp, now + 1);
        REQUIRE(f.bulk.conn_of(peer) == old);
        for (now += 2; f.tcp.dials.size() == dials && now < 9000; ++now) f.turn(now);
        REQUIRE(f.tcp.dials.size() == dials + 1);
        f.answer(f.tcp, now);
        for (const int end = now + 12'000; now < end; ++now) f.turn(now);
        CHECK(f.tcp.dials.size() == dials + 1);
    }
}

// QUIC was dialled after the renewal, and opens first.
TEST_CASE("a dial in flight at a renewal is replaced, too, when it opens after a newer connection",
          "[connections][B8][P12]") {
    Fixture f;
    f.introduce(0);
    REQUIRE(f.tcp.dials.size() == 1);
    f.bulk.replace_all(at_ms(1));
    int now = 2;
    for (; f.quic.dials.empty(); ++now) f.turn(now);
    f.answer(f.quic, now++);
    const ConnectionId old = f.answer(f.tcp, now++);
    REQUIRE(f.bulk.conn_of(peer) == old);
    for (; f.tcp.dials.size() == 1 && now < 9000; ++now) f.turn(now);
    REQUIRE(f.tcp.dials.size() == 2);
    f.answer(f.tcp, now);
    for (const int end = now + 12'000; now < end; ++now) f.turn(now);
    CHECK(f.tcp.dials.size() == 2);
}

}  // namespace
}  // namespace nexar::connections
