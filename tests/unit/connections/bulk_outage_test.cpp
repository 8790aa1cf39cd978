// A peer that neither carrier reaches: how often it is dialled, and which reason is shown.
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

TEST_CASE("who accepts shows no reason that an earlier loss had", "[connections][B8][P12]") {
    const std::string theirs = "the other node dials, and knows why";
    for (const bool refused : {true, false}) {
        CAPTURE(refused);
        Fixture f;
        f.introduce(0, true, "there:2", false);
        const auto accept = [&](FakeCarrier& carrier, int ms) {
            carrier.connect(high, at_ms(ms))
                .receive(preamble_of(incarnation, f.generation += 2, Purpose::bulk));
            f.turn(ms);
        };
        accept(f.tcp, 1);
        f.tcp.close(f.tcp.last, at_ms(5000), "cut", 0, false);
        f.turn(5000);
        CHECK(f.states.back().carrier_why.starts_with("tcp broke at there:2"));
        if (refused) {
            f.turn(5500);
            f.refuse(f.tcp, 5501, "tcp refused");
            CHECK(f.states.back().carrier_why == "tcp refused at there:2");
        }
        accept(f.quic, 5600);
        CHECK(f.states.back().carrier_why == theirs);
        f.quic.close(f.quic.last, at_ms(9000), "cut", 0, false);
        f.turn(9000);
        CHECK_FALSE(f.states.back().up);
        CHECK(f.states.back().carrier_why == theirs);
    }
}

TEST_CASE("a reason speaks of the address and the incarnation that are dialled now", "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.refuse(f.tcp, 1, "tcp refused");
    f.refuse(f.quic, 1, "no answer");
    CHECK(f.states.back().carrier_why == "tcp refused at there:2; quic: no answer at there:2");
    f.introduce(2, true, "elsewhere:2");
    CHECK(f.states.back().carrier_why == "tcp has not answered yet at elsewhere:2");
    f.refuse(f.tcp, 3, "tcp refused");
    CHECK(f.states.back().carrier_why == "tcp refused at elsewhere:2");
    f.bulk.introduce({link::PeerIndex{4}, high, {2, 8}, "elsewhere:2", true, nullptr, true}, at_ms(4));
    f.turn(4);
    CHECK(f.states.back().carrier_why == "tcp has not answered yet at elsewhere:2");
}

TEST_CASE("a loss for which no end gave a reason has its cause as the reason", "[connections]") {
    Fixture f;
    f.introduce(0);
    f.answer(f.tcp, 1);
    f.refuse(f.tcp, 5000, "Connection reset by peer");
    CHECK_FALSE(f.states.back().up);
    CHECK(f.states.back().why == "Connection reset by peer");
}

}  // namespace
}  // namespace nexar::connections
