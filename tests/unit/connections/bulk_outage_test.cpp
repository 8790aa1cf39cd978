// A peer that neither carrier reaches: how often it is dialled.
#include <catch2/catch_test_macros.hpp>

#include "bulk_fixture.hpp"

namespace nexar::connections {
namespace {

constexpr int outage = 60'000;
constexpr size_t slow_dials_max = outage / 7500 + 1;  // with pauses of 10 s, less a quarter

struct Fixture : BulkFixture {
    // QUIC carries, TCP's pause is 10 s; then QUIC breaks. Returns when that is.
    int lose_all() {
        introduce(0);
        refuse(tcp, 1, "tcp refused");
        const ConnectionId id = answer(quic, 2);
        const int now = refuse_tcp(2);
        quic.close(id, at_ms(now), "cut");
        return now;
    }
    // All dials are refused at once; returns how many were over TCP.
    size_t refuse_all(int from, int to) {
        const size_t before = tcp.dials.size();
        size_t over_tcp = before, over_quic = quic.dials.size();
        for (int ms = from; ms < to; ms += 10) {
            turn(ms);
            if (quic.dials.size() > over_quic) {
                over_quic = quic.dials.size();
                refuse(quic, ms, "no answer");
            }
            if (tcp.dials.size() > over_tcp) {
                over_tcp = tcp.dials.size();
                refuse(tcp, ms, "tcp refused");
            }
        }
        return tcp.dials.size() - before;
    }
};

TEST_CASE("a loss hastens TCP once; while neither carrier carries its pauses go on",
          "[connections][B8][P5]") {
    Fixture f;
    const int lost = f.lose_all();
    CHECK(f.refuse_all(lost, lost + 100) == 1);
    const size_t quic_dials = f.quic.dials.size();
    CHECK(f.refuse_all(lost + 100, lost + outage) <= slow_dials_max);
    CHECK(f.quic.dials.size() > quic_dials + 30);
    int now = lost + outage;
    for (const size_t dials = f.tcp.dials.size(); f.tcp.dials.size() == dials; ++now) f.turn(now);
    f.answer(f.tcp, now);
    CHECK(f.states.back().carrier == CarrierKind::tcp);
}

TEST_CASE("the loss after that hastens TCP again", "[connections][B8]") {
    Fixture f;
    int now = f.lose_all();
    CHECK(f.refuse_all(now, now + 100) == 1);
    now += 100;
    for (const size_t dials = f.quic.dials.size(); f.quic.dials.size() == dials; ++now) f.turn(now);
    const ConnectionId again = f.answer(f.quic, now);
    CHECK(f.refuse_all(now + 10, now + 2000) == 0);
    f.quic.close(again, at_ms(now + 2000), "cut");
    CHECK(f.refuse_all(now + 2000, now + 2100) == 1);
}

TEST_CASE("a node that died is dialled over TCP from both ends at the pace of its pauses",
          "[connections][B8][P5][P12]") {
    for (const bool dials : {true, false}) {
        CAPTURE(dials);
        Fixture f;
        f.introduce(0, true, "there:2", dials);
        if (dials)
            f.answer(f.tcp, 1);
        else
            f.tcp.connect(high, at_ms(1)).receive(preamble_of(incarnation, f.generation += 2, Purpose::bulk));
        f.turn(1);
        f.tcp.close(*f.bulk.conn_of(peer), at_ms(5000), "cut", 0, false);
        CHECK(f.refuse_all(5000, 20'000) >= 5);
        CHECK(f.refuse_all(20'000, 20'000 + outage) <= slow_dials_max);
    }
}

TEST_CASE("a new control connection hastens TCP once more where nothing carries", "[connections][B8]") {
    Fixture f;
    const int lost = f.lose_all();
    f.refuse_all(lost, lost + outage);
    const int now = lost + outage;
    for (const int ms : {now, now + 10}) {
        const size_t dials = f.tcp.dials.size();
        f.introduce(ms);
        f.refuse(f.quic, ms + 1, "no answer");
        CHECK(f.tcp.dials.size() == dials + 1);
        f.refuse(f.tcp, ms + 2, "tcp refused");
    }
}

TEST_CASE("while transfers wait TCP is dialled as often as QUIC is", "[connections][B8][P13]") {
    Fixture f;
    const int lost = f.lose_all();
    f.wait_for_peer(lost);
    const size_t quic_dials = f.quic.dials.size();
    const size_t tcp_dials = f.refuse_all(lost, lost + 5000);
    CHECK(tcp_dials + 1 >= f.quic.dials.size() - quic_dials);
}

}  // namespace
}  // namespace nexar::connections
