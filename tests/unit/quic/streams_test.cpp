// Bytes: order, wholeness, priority, room, loss.
#include <catch2/catch_test_macros.hpp>

#include "network.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

// Distinct for each sender, class and position.
std::byte expected_byte(unsigned sender, Class cls, uint64_t at) {
    uint64_t x =
        (at + 1) * 0x9e3779b97f4a7c15u + sender * 0xbf58476d1ce4e5b9u + static_cast<uint64_t>(cls) * 77777u;
    x ^= x >> 31;
    return static_cast<std::byte>(x * 0x94d049bb133111ebu >> 56);
}
std::vector<std::byte> pattern(unsigned sender, Class cls, uint64_t from, size_t n) {
    std::vector<std::byte> out(n);
    for (size_t i = 0; i < n; ++i) out[i] = expected_byte(sender, cls, from + i);
    return out;
}

// Writes `total` bytes of each class whenever there is room.
struct Pump {
    unsigned sender;
    size_t total;
    std::array<size_t, class_count> written{};
    void go(quic::Connection& c) {
        for (size_t i = 0; i < class_count; ++i) {
            const Class cls = static_cast<Class>(i);
            while (written[i] < total) {
                const size_t n = std::min({c.room(cls), total - written[i], size_t{100'003}});
                if (n == 0) break;
                const auto bytes = pattern(sender, cls, written[i], n);
                const Bytes parts[] = {Bytes(bytes).first(n / 3), Bytes(bytes).subspan(n / 3)};
                c.write(cls, parts);
                written[i] += n;
            }
        }
    }
};

bool whole(const Host::Inbox& in, unsigned sender, size_t total) {
    for (size_t i = 0; i < class_count; ++i)
        if (in.bytes[i] != pattern(sender, static_cast<Class>(i), 0, total)) return false;
    return true;
}
bool arrived(const Host::Inbox& in, size_t total) {
    for (const auto& bytes : in.bytes)
        if (bytes.size() < total) return false;
    return true;
}

void exchange(Pair& p, size_t total) {
    REQUIRE(p.connect());
    Pump pa{1, total}, pb{2, total};
    REQUIRE(p.net.run(
        [&] {
            pa.go(*p.a.connection());
            pb.go(*p.b.connection());
            return arrived(p.a.inbox(), total) && arrived(p.b.inbox(), total);
        },
        120s));
    CHECK(whole(p.b.inbox(), 1, total));
    CHECK(whole(p.a.inbox(), 2, total));
    CHECK(p.a.count(Event::Kind::closed) == 0);
    CHECK(p.b.count(Event::Kind::closed) == 0);
}

}  // namespace

TEST_CASE("8 MiB of each class arrive whole and in order, both ways at once", "[quic]") {
    Pair p(11);
    exchange(p, 8 << 20);
}

TEST_CASE("loss, doubling, reordering and bit flips change nothing that is delivered", "[quic]") {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        CAPTURE(seed);
        quic::Config config;
        if (seed % 2 == 0) config.timer_granularity = 1ms;
        Pair p(seed, config);
        p.net.weather = {40, 50, 60, 200us, 700us, 1500};
        exchange(p, 512 << 10);
        CHECK(p.a.connection()->stats().packets_lost > 0);
    }
}

TEST_CASE("the path's size is found: large where it is large, 1452 where it is not", "[quic]") {
    for (const size_t payload_max : {size_t{1472}, size_t{8972}, size_t{65507}}) {
        Pair p(12);
        p.net.weather.payload_max = payload_max;
        exchange(p, 1 << 20);
        const size_t found = p.a.connection()->stats().udp_payload;
        CAPTURE(payload_max, found);
        CHECK(found == (payload_max == 1472 ? 1452u : payload_max == 8972 ? 8952u : 65507u));
    }
}

TEST_CASE("the configured payload limit caps every datagram", "[quic]") {
    quic::Config config;
    config.udp_payload_max = 1452;
    Pair p(13, config);
    size_t largest = 0;
    p.net.tap = [&](const Packet& packet) { largest = std::max(largest, packet.bytes.size()); };
    exchange(p, 1 << 20);
    CHECK(largest == 1452);
}

TEST_CASE("room shrinks by what is written and returns when the peer has acknowledged", "[quic]") {
    Pair p(14);
    REQUIRE(p.connect());
    p.net.pass(100ms);
    quic::Connection& c = *p.a.connection();
    const size_t before = c.room(Class::small);
    CHECK(before == quic::Config{}.send_buffer_max[2]);
    c.write(Class::small, pattern(1, Class::small, 0, 100'000));
    CHECK(c.room(Class::small) == before - 100'000);
    CHECK(c.room(Class::bulk) == quic::Config{}.send_buffer_max[3]);
    const size_t events = p.a.count(Event::Kind::room);
    REQUIRE(p.net.run([&] { return c.room(Class::small) == before; }));
    CHECK(p.a.count(Event::Kind::room) > events);
}

TEST_CASE("writing beyond room closes the connection and says which class", "[quic]") {
    for (const Class cls : {Class::control, Class::bulk}) {
        Pair p(15);
        REQUIRE(p.connect());
        quic::Connection& c = *p.a.connection();
        c.write(cls, std::vector<std::byte>(c.room(cls) + 1));
        CHECK(c.room(cls) == 0);
        REQUIRE(p.net.run([&] { return p.b.last(Event::Kind::closed); }));
        const CloseInfo& here = p.a.last(Event::Kind::closed)->close;
        CHECK(here.cause == CloseInfo::Cause::closed_here);
        CHECK(here.code == static_cast<uint64_t>(quic::CloseCode::send_overflow));
        CHECK(here.reason.starts_with("class " + std::to_string(static_cast<int>(cls))));
        CHECK(p.b.last(Event::Kind::closed)->close.reason == here.reason);
    }
}

TEST_CASE("control overtakes 4 MiB of queued bulk", "[quic]") {
    quic::Config config;
    config.udp_payload_max = 1452;
    config.send_buffer_max[3] = 8 << 20;
    Pair p(16, config);
    REQUIRE(p.connect());
    p.a.connection()->write(Class::bulk, pattern(1, Class::bulk, 0, 4 << 20));
    p.net.run([&] { return !p.b.inbox().bytes[3].empty(); });
    p.a.connection()->write(Class::control, pattern(1, Class::control, 0, 50));
    REQUIRE(p.net.run([&] { return p.b.inbox().bytes[0].size() == 50; }));
    const size_t bulk_before_control = p.b.inbox().bytes[3].size();
    CAPTURE(bulk_before_control);
    CHECK(bulk_before_control < (1 << 20));
    REQUIRE(p.net.run([&] { return p.b.inbox().bytes[3].size() == (4 << 20); }));
}

TEST_CASE("a flood of control does not starve bulk: the floor", "[quic]") {
    quic::Config config;
    config.udp_payload_max = 1452;
    Pair p(17, config);
    REQUIRE(p.connect());
    p.a.connection()->write(Class::bulk, pattern(1, Class::bulk, 0, 20'000));
    p.a.connection()->write(Class::control, pattern(1, Class::control, 0, 3 << 20));
    REQUIRE(p.net.run([&] { return p.b.inbox().bytes[3].size() == 20'000; }));
    CHECK(p.b.inbox().bytes[0].size() > (200 << 10));  // control went first
    CHECK(p.b.inbox().bytes[0].size() < (3 << 20));    // but not all of it
}

TEST_CASE("bytes without a receiver wait, and stop the sender at the window", "[quic]") {
    Pair p(18);
    p.b.attach_receivers = false;
    REQUIRE(p.connect());
    Pump pump{1, 12 << 20};
    p.net.run([&] { return pump.go(*p.a.connection()), false; }, 3s);
    CHECK(pump.written[3] < (17 << 20));
    CHECK(p.b.inbox().bytes[3].empty());
    p.b.connection()->set_receiver(&p.b.inbox());
    CHECK_FALSE(p.b.inbox().bytes[3].empty());
    REQUIRE(p.net.run([&] { return pump.go(*p.a.connection()), arrived(p.b.inbox(), 12 << 20); }));
    CHECK(whole(p.b.inbox(), 1, 12 << 20));
}

TEST_CASE("heartbeats arrive although bulk fills the connection, and count as received", "[quic]") {
    Pair p(19);
    REQUIRE(p.connect());
    p.net.pass(1s);
    const Time before = p.b.connection()->last_received_at();
    p.a.connection()->write(Class::bulk, pattern(1, Class::bulk, 0, 1 << 20));
    p.a.connection()->write(Class::control, test::bytes_of("beat"));
    REQUIRE(p.net.run([&] { return p.b.inbox().bytes[0].size() == 4; }));
    CHECK(p.b.inbox().bytes[3].size() < (1 << 20));
    CHECK(p.b.connection()->last_received_at() > before);
    CHECK(p.b.last(Event::Kind::received));
}

TEST_CASE("answering from inside the receiver works", "[quic]") {
    Pair p(21);
    REQUIRE(p.connect());
    p.b.inbox().also = [&](Class cls, Bytes b) { p.b.connection()->write(cls, b); };
    const auto sent = pattern(1, Class::rpc, 0, 300'000);
    p.a.connection()->write(Class::rpc, sent);
    REQUIRE(p.net.run([&] { return p.a.inbox().bytes[1].size() == sent.size(); }));
    CHECK(p.a.inbox().bytes[1] == sent);
}

TEST_CASE("a stream of an unknown kind or class, or a class twice, closes the connection and is named",
          "[quic][V4]") {
    struct Broken {
        std::array<std::byte, 2> preamble;
        std::string reason;
    };
    for (const Broken& broken :
         {Broken{{std::byte{9}, std::byte{0}}, "a stream of the peer has kind 9; allowed: 1"},
          Broken{{std::byte{2}, std::byte{3}}, "a stream of the peer has kind 2; allowed: 1"},
          Broken{{std::byte{0}, std::byte{3}}, "a stream of the peer has kind 0; allowed: 1"},
          Broken{{std::byte{1}, std::byte{7}}, "a stream of the peer has class 7; allowed: 0 to 3"},
          Broken{{std::byte{1}, std::byte{3}}, "two streams of the peer have class 3"}}) {
        quic::Config config;
        config.sabotage.control_preamble = broken.preamble;
        Network net(22);
        Host& a = net.add(1, config, identity(1), accept_all);
        Host& b = net.add(2, {}, identity(2), accept_all);
        REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
        REQUIRE(net.run([&] { return a.last(Event::Kind::closed) && b.last(Event::Kind::closed); }));
        CHECK(b.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::protocol_error);
        CHECK(a.last(Event::Kind::closed)->close.code == static_cast<uint64_t>(quic::CloseCode::bad_stream));
        CHECK(a.last(Event::Kind::closed)->close.reason == broken.reason);
    }
}

// Not in the ordinary run: unit_quic "[soak]".
TEST_CASE("any weather: what is delivered is whole, or the connection says that it ended", "[.][soak]") {
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        quic::Config config;
        config.pacing = random.one_in(2);
        config.congestion_control = static_cast<quic::CongestionControl>(random.below(3));
        Pair p(seed, config);
        const auto one_in = [&] {
            return static_cast<unsigned>(random.one_in(3) ? 0 : 2 + random.below(100));
        };
        p.net.weather.lose_one_in = one_in();
        p.net.weather.double_one_in = one_in();
        p.net.weather.corrupt_one_in = one_in();
        p.net.weather.delay = Duration(static_cast<int64_t>(1 + random.below(20'000'000)));
        p.net.weather.jitter = Duration(static_cast<int64_t>(random.below(20'000'000)));
        p.net.weather.payload_max = 1200 + random.below(65000);
        p.dial();
        const size_t total = 64 << 10;
        Pump pa{1, total}, pb{2, total};
        const bool all = p.net.run(
            [&] {
                if (auto* c = p.a.connection()) pa.go(*c);
                if (auto* c = p.b.connection()) pb.go(*c);
                if (p.a.last(Event::Kind::closed)) return true;
                return p.a.connection() && p.b.connection() && arrived(p.a.inbox(), total) &&
                       arrived(p.b.inbox(), total);
            },
            200s);
        REQUIRE(all);
        if (p.a.last(Event::Kind::closed)) {
            CHECK_FALSE(p.a.last(Event::Kind::closed)->close.reason.empty());
            continue;
        }
        CHECK(whole(p.b.inbox(), 1, total));
        CHECK(whole(p.a.inbox(), 2, total));
    }
}
