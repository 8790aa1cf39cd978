// A peer that a carrier does not reach: which reason is shown.
#include <catch2/catch_test_macros.hpp>

#include "bulk_fixture.hpp"

namespace nexar::connections {
namespace {

using Fixture = BulkFixture;

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
            CHECK(f.states.back().carrier_why == "tcp refused at there:2; " + theirs);
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
    CHECK(f.states.back().carrier_why == "tcp has not answered yet at elsewhere:2; quic is dialled next");
    f.refuse(f.tcp, 3, "tcp refused");  // that dial had begun before
    f.turn(1000);
    f.refuse(f.tcp, 1001, "tcp refused");
    CHECK(f.states.back().carrier_why.starts_with("tcp refused at elsewhere:2; quic"));
    f.bulk.introduce({link::PeerIndex{4}, high, {2, 8}, "elsewhere:2", true, nullptr, true}, at_ms(1002));
    f.turn(1002);
    CHECK(f.states.back().carrier_why.starts_with("tcp has not answered yet at elsewhere:2; quic"));
}

TEST_CASE("a failure names the address that was dialled, whichever is known since", "[connections][B8]") {
    Fixture f;
    f.introduce(0);
    f.turn(1);
    f.introduce(2, true, "elsewhere:2");
    f.refuse(f.tcp, 3, "tcp refused");
    CHECK(f.states.back().carrier_why.starts_with("tcp refused at there:2; "));
    f.turn(1000);
    f.answer(f.tcp, 1001);
    REQUIRE(f.states.back().up);
    f.introduce(1002, true, "third:2");
    f.refuse(f.tcp, 9000, "Connection reset by peer");
    CHECK(f.states.back().carrier_why.starts_with("tcp broke at elsewhere:2 (Connection reset by peer)"));
}

TEST_CASE("a peer that nothing reaches yet shows what is awaited over each carrier", "[connections][B8]") {
    Fixture f;
    f.introduce(0, true, "there:2");
    f.refuse(f.tcp, 1, "tcp refused");
    CHECK_FALSE(f.states.back().up);
    CHECK(f.states.back().carrier_why.starts_with("tcp refused at there:2; quic "));
}

TEST_CASE("only a connection that has just been made is new", "[connections][P14]") {
    Fixture f;
    f.introduce(0);
    f.refuse(f.tcp, 1, "tcp refused");
    f.answer(f.quic, 2);
    REQUIRE(f.states.back().up);
    CHECK(f.states.back().is_new);
    const size_t known = f.states.size();
    f.introduce(1000, true, "elsewhere:2");  // the reason is another one, over the same connection
    REQUIRE(f.states.size() > known);
    CHECK(f.states.back().up);
    CHECK_FALSE(f.states.back().is_new);
    CHECK_FALSE(f.states.back().answers);
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
