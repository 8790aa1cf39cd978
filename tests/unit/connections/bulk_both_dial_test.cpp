// Who accepts bulk connections dials as well where none comes; dials that are given up replace nothing.
#include <catch2/catch_test_macros.hpp>

#include "bulk_fixture.hpp"

namespace nexar::connections {
namespace {

using Fixture = BulkFixture;

TEST_CASE("who accepts dials TCP as well where its connection broke, until one is in use",
          "[connections][B8][P12]") {
    Fixture f;
    f.introduce(0, true, "there:2", false);
    f.tcp.connect(high, at_ms(1)).receive(preamble_of(incarnation, f.generation += 2, Purpose::bulk));
    f.turn(1);
    CHECK((f.tcp.dials.empty() && f.quic.dials.empty()));
    f.tcp.close(f.tcp.last, at_ms(5000), "cut", 0, false);
    f.turn(5000);
    f.turn(5499);
    CHECK((f.tcp.dials.empty() && f.quic.dials.empty()));
    f.turn(5500);
    CHECK((f.tcp.dials.size() == 1 && f.quic.dials.empty()));
    f.turn(5700);  // it has not answered in a moment
    REQUIRE(f.quic.dials.size() == 1);
    f.answer(f.quic, 5701);
    f.refuse(f.tcp, 5800, "tcp refused");
    for (int ms = 5800; ms < 20'000; ms += 50) f.turn(ms);
    CHECK((f.tcp.dials.size() == 1 && f.quic.dials.size() == 1));  // QUIC carries: TCP is the peer's to dial
    CHECK(f.states.back().carrier_why == "the other node dials, and knows why");
}

TEST_CASE("who accepts leaves TCP to the peer when that has dialled QUIC meanwhile",
          "[connections][B8][P12]") {
    Fixture f;
    f.introduce(0, true, "there:2", false);
    for (const int ms : {1, 5100}) {
        FakeCarrier& carrier = ms == 1 ? f.tcp : f.quic;
        carrier.connect(high, at_ms(ms)).receive(preamble_of(incarnation, f.generation += 2, Purpose::bulk));
        f.turn(ms);
        if (ms == 1) f.tcp.close(f.tcp.last, at_ms(5000), "cut", 0, false);
        f.turn(ms == 1 ? 5000 : ms);
    }
    for (int ms = 5100; ms < 20'000; ms += 50) f.turn(ms);
    CHECK((f.tcp.dials.empty() && f.quic.dials.empty()));
}

// What swallows UDP may let TCP pass, and the peer's pause before its next dial may be long.
TEST_CASE("who accepts dials TCP as well where its QUIC connection ended, and the peer may not know",
          "[connections][B8][P12]") {
    for (const bool silent : {true, false}) {
        CAPTURE(silent);
        Fixture f;
        f.introduce(0, true, "there:2", false);
        f.quic.connect(high, at_ms(1)).receive(preamble_of(incarnation, f.generation += 2, Purpose::bulk));
        f.turn(1);
        f.quic.close(f.quic.last, at_ms(5000), "it is silent while transfers wait for it",
                     silent ? Channels::close_silent : 0, false);
        for (const int ms : {5000, 5499, 5500}) {
            f.turn(ms);
            CHECK(f.tcp.dials.size() == (silent || ms == 5500 ? 1 : 0));
            CHECK(f.quic.dials.size() == f.tcp.dials.size());
        }
        f.refuse(f.tcp, 5501, "tcp refused");
        for (int ms = 5502; ms < 9000; ms += 10) f.turn(ms);
        CHECK(f.tcp.dials.size() > 1);
    }
}

TEST_CASE("who dials says that the peer has left TCP", "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.answer(f.tcp, 1);
    f.quic.connect(high, at_ms(5000)).receive(preamble_of(incarnation, f.generation += 2, Purpose::bulk));
    f.turn(5000);
    CHECK(f.states.back().carrier_why == "the other node left tcp at there:2");
    for (int ms = 5001; ms < 5400; ++ms) f.turn(ms);
    CHECK(f.tcp.dials.size() == 2);  // and tries it again
}

TEST_CASE("who accepts dials TCP as well, and QUIC a moment later, when no connection has come",
          "[connections][B8][P12]") {
    Fixture f;
    f.introduce(0, true, "there:2", false);
    REQUIRE(f.states.size() == 1);
    CHECK(f.states.back().carrier_why == "the other node dials, and knows why");
    f.turn(2999);
    CHECK((f.tcp.dials.empty() && f.quic.dials.empty()));
    f.turn(3000);
    CHECK((f.tcp.dials.size() == 1 && f.quic.dials.empty()));
    f.turn(3200);
    CHECK((f.tcp.dials.size() == 1 && f.quic.dials.size() == 1));
    f.refuse(f.tcp, 3201, "tcp refused");
    f.refuse(f.quic, 3201, "no answer");
    CHECK(f.states.back().carrier_why == "tcp refused at there:2; quic: no answer at there:2");
    int now = 3202;
    for (; f.tcp.dials.size() < 2; ++now) f.turn(now);
    f.answer(f.tcp, now);
    CHECK(f.states.back().carrier == CarrierKind::tcp);
    CHECK(f.states.back().carrier_why.empty());
}

TEST_CASE("a certificate's end over TCP that the peer could not replace is followed by a dial over TCP",
          "[connections][B8][P12]") {
    Fixture f;
    f.introduce(0, true, "there:2", false);
    f.turn(3000);
    const ConnectionId id = f.answer(f.tcp, 3001);
    f.tcp.close(id, at_ms(9000), "the certificate that you showed has ended", 4, false);
    for (const int ms : {9000, 9499, 9500}) {
        f.turn(ms);
        CHECK(f.tcp.dials.size() == (ms == 9500 ? 2 : 1));
    }
    f.answer(f.tcp, 9501);
    CHECK(f.states.back().carrier == CarrierKind::tcp);
}

TEST_CASE("a dial over QUIC that was given up does not replace TCP", "[connections][B8][P4]") {
    for (const bool answered : {true, false}) {
        CAPTURE(answered);
        Fixture f;
        f.introduce(0);
        f.refuse(f.tcp, 1, "tcp refused");
        REQUIRE(f.quic.dials.size() == 1);
        const ConnectionId late = f.quic.dials.back().id;
        int now = 2;
        for (; f.quic.dials.size() < 2; ++now) {
            if (f.tcp.dials.size() > 1 && now < 2500) f.refuse(f.tcp, now, "tcp refused");
            if (answered && now == 2600) f.quic.connect(high, at_ms(now), late);  // its answer is late
            f.turn(now);
        }
        for (; f.tcp.dials.size() < 2; ++now) f.turn(now);
        const ConnectionId tcp = f.answer(f.tcp, now);
        REQUIRE(f.bulk.conn_of(peer) == tcp);
        if (!answered) f.quic.connect(high, at_ms(now + 1), late);
        if (answered) {
            FakeCarrier::Conn& conn = f.quic.conns.at(late);
            conn.receive(preamble_of(incarnation, conn.preamble().generation, Purpose::bulk));
        }
        f.turn(now + 1);
        CHECK(f.quic.conns.at(late).closed);
        CHECK(f.bulk.conn_of(peer) == tcp);
    }
}

// The peer may have adopted it, and have closed what was in use before.
TEST_CASE("a dial whose preamble has gone out is given up, but not closed", "[connections][P4][P12]") {
    for (const bool over_tcp : {true, false}) {
        CAPTURE(over_tcp);
        Fixture f;
        f.introduce(0, over_tcp);
        FakeCarrier& carrier = over_tcp ? f.tcp : f.quic;
        const ConnectionId slow = carrier.dials.front().id;
        FakeCarrier::Conn& conn = carrier.connect(high, at_ms(1500), slow);
        for (int ms = 1500; ms < 3400; ms += 20) f.turn(ms);
        CHECK(carrier.dials.size() > 1);
        REQUIRE_FALSE(conn.closed);
        conn.receive(preamble_of(incarnation, conn.preamble().generation, Purpose::bulk));
        f.turn(3400);
        CHECK(f.bulk.conn_of(peer) == slow);
    }
}

TEST_CASE("who accepts waits no longer for a dial than a heartbeat may be late", "[connections][P12]") {
    BulkConfig config = Fixture::config();
    config.watch.timeout = Duration{1'000'000'000};
    Fixture f(config);
    f.introduce(0, true, "there:2", false);
    f.turn(999);
    CHECK((f.tcp.dials.empty() && f.quic.dials.empty()));
    f.turn(1000);
    CHECK(f.tcp.dials.size() == 1);
}

TEST_CASE("a dial over QUIC that has no answer to its preamble does not replace TCP that was dialled later",
          "[connections][B8][P4]") {
    Fixture f;
    f.introduce(0);
    f.turn(200);
    REQUIRE(f.quic.dials.size() == 1);
    const ConnectionId late = f.quic.dials.back().id;
    f.quic.connect(high, at_ms(300), late);
    f.turn(300);
    const ConnectionId tcp = f.answer(f.tcp, 900);
    CHECK(f.bulk.conn_of(peer) == tcp);
    CHECK(f.quic.conns.at(late).closed);
}

TEST_CASE("a dial over TCP that was given up is closed when it is answered late", "[connections][B8][P5]") {
    Fixture f;
    f.introduce(0);
    const ConnectionId late = f.tcp.dials.back().id;
    f.turn(200);
    f.answer(f.quic, 201);
    int now = 202;
    for (; f.tcp.dials.size() < 2; ++now) f.turn(now);
    CHECK(now > 3000);
    const ConnectionId tcp = f.answer(f.tcp, now);
    f.tcp.connect(high, at_ms(now + 1), late);
    f.turn(now + 1);
    CHECK(f.tcp.conns.at(late).closed);
    CHECK(f.bulk.conn_of(peer) == tcp);
}

// Both were answered, QUIC after TCP: the peer keeps QUIC, which has the higher generation.
TEST_CASE("who dialled QUIC itself does not say that the peer has left TCP", "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.turn(200);
    const ConnectionId tcp = f.tcp.dials.back().id, quic = f.quic.dials.back().id;
    FakeCarrier::Conn& over_tcp = f.tcp.connect(high, at_ms(201), tcp);
    FakeCarrier::Conn& over_quic = f.quic.connect(high, at_ms(202), quic);
    over_tcp.receive(preamble_of(incarnation, over_tcp.preamble().generation, Purpose::bulk));
    f.turn(203);
    REQUIRE(f.bulk.conn_of(peer) == tcp);
    REQUIRE_FALSE(over_quic.closed);
    over_quic.receive(preamble_of(incarnation, over_quic.preamble().generation, Purpose::bulk));
    f.turn(204);
    REQUIRE(f.bulk.conn_of(peer) == quic);
    CHECK(f.states.back().carrier_why == "quic was dialled before tcp, and opened after it, at there:2");
}

}  // namespace
}  // namespace nexar::connections
