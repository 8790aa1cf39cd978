// What connections that have not attached may take of their thread [B11].
#include "transport/handshake_share.hpp"

#include <poll.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "tcp_side.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using test::Side;
using test::Unidentified;
using transport::HandshakeShare;
using transport::TcpCarrier;

namespace {

constexpr Duration share = 1us;  // what a step of any handshake takes is more
constexpr Duration longest = HandshakeShare::debt_max * TcpCarrier::handshake_interval;

struct Victim {
    uint16_t port = test::free_port();
    Side side{"a", port, share};
    std::vector<Unidentified> others;
    Time now = loop::Loop::now();

    bool turn_until(auto done) {
        for (const Time end = loop::Loop::now() + 20s; loop::Loop::now() < end;) {
            side.turn(now);
            if (done()) return true;
        }
        return false;
    }
    // All have come at one moment; the first has taken the share, and the others wait.
    void come(size_t count) {
        for (size_t i = 0; i < count; ++i) {
            others.emplace_back(uint8_t{1}, port);
            REQUIRE(turn_until([&] { return side.carrier->handshakes_waiting() == i; }));
        }
    }
    bool is_quiet() const {
        pollfd socket{side.carrier->fd(), POLLIN, 0};
        return ::poll(&socket, 1, 0) == 0 && side.carrier->wake_at() > now;
    }
};

}  // namespace

TEST_CASE("a share of each interval; more is paid by waiting, and a long step by no more than so much",
          "[transport][B11]") {
    HandshakeShare s(1ms, 10ms);
    const Time begin = Time{} + 1s;
    REQUIRE(s.allows(begin));
    s.take(600us);
    REQUIRE(s.allows(begin + 1ms));
    s.take(900us);
    CHECK_FALSE(s.allows(begin + 2ms));
    CHECK(s.free_at() == begin + 15ms);
    CHECK_FALSE(s.allows(begin + 15ms - 1ns));
    REQUIRE(s.allows(begin + 15ms));
    s.take(1h);  // the whole machine stood still
    CHECK(s.free_at() == begin + 15ms + 100ms);
    REQUIRE(s.allows(begin + 1min));
    s.take(900us);
    CHECK(s.allows(begin + 1min + 5ms));
    REQUIRE(s.allows(begin + 1min + 10ms));  // another interval, in which nothing was taken
    s.take(900us);
    CHECK(s.allows(begin + 1min + 10ms));
    HandshakeShare none(0ms, 10ms);
    none.take(1h);
    CHECK(none.allows(begin));
}

TEST_CASE("beyond their share handshakes wait, and wake nobody meanwhile", "[transport][B11]") {
    Victim v;
    v.come(8);
    CHECK(v.is_quiet());
    CHECK(v.side.carrier->wake_at() <= v.now + longest);
    const size_t waiting = v.side.carrier->handshakes_waiting();
    REQUIRE(v.turn_until([&] {
        v.now = std::max(v.now, v.side.carrier->wake_at());
        return v.side.carrier->handshakes_waiting() < waiting;
    }));
    REQUIRE(v.turn_until([&] { return v.is_quiet(); }));
    // Who resets its connection while it waits is forgotten at once, and wakes nobody twice.
    const linger reset{1, 0};
    for (const Unidentified& one : v.others)
        REQUIRE(::setsockopt(one.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset) == 0);
    v.others.clear();
    REQUIRE(v.turn_until([&] { return v.side.carrier->half_open() == 0; }));
    CHECK(v.turn_until([&] { return v.is_quiet(); }));
}

TEST_CASE("one that waits for the share and is half-closed is forgotten at once",
          "[transport][B5][B10][B11]") {
    Victim v;
    v.come(8);
    for (const Unidentified& one : v.others) REQUIRE(::shutdown(one.fd(), SHUT_WR) == 0);
    REQUIRE(v.turn_until([&] { return v.side.carrier->half_open() == 0; }));
    CHECK(v.turn_until([&] { return v.is_quiet(); }));
}

TEST_CASE("what handshakes have taken is forgotten when there were none for a while", "[transport][B11]") {
    Victim v;
    v.come(8);
    v.others.clear();
    v.now += 10s;
    REQUIRE(v.turn_until([&] { return v.side.carrier->half_open() == 0; }));
    v.now += longest;
    v.others.emplace_back(uint8_t{1}, v.port);
    REQUIRE(v.turn_until([&] { return v.side.carrier->half_open() == 1; }));
    for (int i = 0; i < 16; ++i) v.side.turn(v.now);
    CHECK(v.side.carrier->handshakes_waiting() == 0);
}

TEST_CASE("one that waits for the share is not taken for one that has sent nothing", "[transport][B5][B11]") {
    Victim v;
    v.come(tcp::HalfOpen::per_site_max);
    REQUIRE(v.side.carrier->half_open() == tcp::HalfOpen::per_site_max);
    v.others.emplace_back(uint8_t{1}, v.port);
    REQUIRE(v.turn_until([&] { return v.others.front().is_closed(); }));  // the oldest
    CHECK(std::ranges::count_if(v.others, &Unidentified::is_closed) == 1);
}

// Else newcomers took the share again and again, and nobody attached.
TEST_CASE("who has begun is served before newcomers that wait for the share", "[transport][B11]") {
    Victim v;
    const uint16_t port = test::free_port();
    Side member("b", port);
    member.carrier->set_peer(v.now, test::peer(v.side.leaf.id, {1, v.port}));
    v.side.carrier->set_peer(v.now, test::peer(member.leaf.id, {1, port}));
    REQUIRE(member.carrier->dial(v.now, v.side.address, v.side.leaf.id));
    // Six newcomers, of ever other sites, for each step that the share allows.
    uint8_t site = 0;
    REQUIRE(v.turn_until([&] {
        member.turn();
        if (v.side.carrier->handshakes_waiting() == 0 || v.side.carrier->wake_at() <= v.now) return false;
        for (int i = 0; i < 6; ++i) v.others.emplace_back(++site, v.port);
        for (int i = 0; i < 8; ++i) v.side.turn(v.now), member.turn();
        v.now = std::max(v.now, v.side.carrier->wake_at());
        return !v.side.open.empty() || site >= 240;
    }));
    CHECK(v.side.open.size() == 1);
    CHECK(site <= 30);
}
