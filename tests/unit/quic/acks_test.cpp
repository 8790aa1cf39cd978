// When a connection acknowledges: at once, after the delay, or along with what it sends.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "network.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

quic::Config of_control() {
    quic::Config out;
    out.timer_granularity = 1ms;
    return out;
}

// Both write a message, get the other's, and do something else for 50 us, again and again. Returns the
// datagrams of a round.
double datagrams_of_exchanges(const quic::Config& config) {
    constexpr size_t rounds = 200, bytes = 100;
    Pair p(21, config);
    REQUIRE(p.connect());
    p.net.pass(100ms);  // the path's size has been found
    const std::vector<std::byte> message(bytes, std::byte{7});
    const std::array<Bytes, 1> parts{Bytes(message)};
    const auto arrived = [&](Host& h) { return h.inbox().bytes[static_cast<size_t>(Class::small)].size(); };
    const uint64_t before = p.net.datagrams;
    for (size_t round = 1; round <= rounds; ++round) {
        p.a.connection()->write(Class::small, parts);
        p.b.connection()->write(Class::small, parts);
        REQUIRE(p.net.run([&] { return arrived(p.a) == round * bytes && arrived(p.b) == round * bytes; }));
        p.net.pass(50us);
    }
    return static_cast<double>(p.net.datagrams - before) / rounds;
}

// For how long the sender of one message keeps it.
Duration kept(const quic::Config& config, Duration delay) {
    Pair p(22, config);
    p.net.weather.delay = delay;
    REQUIRE(p.connect());
    p.net.pass(1s);
    const Time begin = p.net.now;
    const uint64_t sent = p.net.datagrams;
    const std::array<Bytes, 1> parts{bytes_of("one message")};
    p.a.connection()->write(Class::small, parts);
    const uint64_t written = p.a.connection()->written(Class::small);
    REQUIRE(p.net.run([&] { return p.a.connection()->acknowledged(Class::small) == written; }));
    CHECK(p.net.datagrams == sent + 2);  // it was not sent again
    return p.net.now - begin;
}

}  // namespace

TEST_CASE("messages both ways take the acknowledgements along", "[quic]") {
    CHECK(datagrams_of_exchanges(of_control()) < 2.25);
    CHECK(datagrams_of_exchanges({}) > 3);  // an eighth of the round trip is over sooner
}

TEST_CASE("a message that nothing follows is acknowledged a millisecond later at most", "[quic]") {
    for (const Duration delay : {Duration(20us), Duration(100us), Duration(20ms)}) {
        const Duration round_trip = 2 * delay, wait = std::min(round_trip / 8, Duration(5ms));
        CAPTURE(delay.count());
        const Duration slack{1'000};  // what ngtcp2 has measured is not to the nanosecond
        CHECK(kept({}, delay) <= round_trip + wait + slack);
        quic::Config paced = of_control();
        paced.pacing = true;  // its deadlines are those of packets
        CHECK(kept(paced, delay) <= round_trip + wait + slack);
        const Duration put_off = kept(of_control(), delay);
        CHECK(put_off >= round_trip);
        CHECK(put_off <= round_trip + wait + slack + Duration(1ms));
    }
}

TEST_CASE("deadlines that were put off come: probes, and the end of a silent connection", "[quic]") {
    Pair p(23, of_control());
    REQUIRE(p.connect());
    p.net.weather.lose_one_in = 1;  // nothing arrives any more
    const std::array<Bytes, 1> parts{bytes_of("lost")};
    p.a.connection()->write(Class::small, parts);
    const uint64_t before = p.net.datagrams;
    p.net.pass(200ms);
    CHECK(p.net.datagrams - before >= 4);  // probes (RFC 9002, section 6.2)
    p.net.weather.lose_one_in = 0;
    const auto& arrived = p.b.inbox().bytes[static_cast<size_t>(Class::small)];
    CHECK(p.net.run([&] { return !arrived.empty(); }));
    CHECK(std::ranges::equal(arrived, bytes_of("lost")));
    p.net.weather.lose_one_in = 1;
    CHECK(p.net.run([&] { return p.a.last(Event::Kind::closed) && p.b.last(Event::Kind::closed); }, 120s));
}
