// Hostile and broken input: nothing crashes, honest connections live on, and what an attacker can occupy is
// limited.
#include <catch2/catch_test_macros.hpp>

#include "initial_packet.hpp"
#include "network.hpp"

using namespace nexar;
using namespace nexar::test;

TEST_CASE("random, truncated, mutated and replayed datagrams harm nobody", "[quic]") {
    Pair p(31);
    std::vector<Packet> seen;
    p.net.tap = [&](const Packet& packet) {
        if (seen.size() < 400) seen.push_back(packet);
    };
    REQUIRE(p.connect());
    p.a.connection()->write(Class::bulk, std::vector<std::byte>(300'000, std::byte{5}));
    p.b.connection()->write(Class::bulk, std::vector<std::byte>(300'000, std::byte{6}));
    REQUIRE(p.net.run(
        [&] { return p.a.inbox().bytes[3].size() == 300'000 && p.b.inbox().bytes[3].size() == 300'000; }));
    p.net.tap = nullptr;
    p.net.pass(1s);  // nothing is in the air any more: what comes from here on is a replay
    const Time received = p.b.connection()->last_received_at();

    Random& random = p.net.random();
    const Address spoofed = *Address::parse("10.9.9.9:1");
    std::vector<std::byte> buffer(quic::Endpoint::send_buffer_bytes);
    for (int i = 0; i < 30'000; ++i) {
        std::vector<std::byte> bytes;
        Host& to = random.one_in(2) ? p.a : p.b;
        const Host& from = &to == &p.a ? p.b : p.a;
        if (random.one_in(3)) {
            bytes.resize(random.below(1500));
            for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
            if (!bytes.empty() && random.one_in(2)) bytes[0] |= std::byte{0xc0};
        } else {
            const Packet& packet = seen[random.below(seen.size())];
            bytes = packet.bytes;
            if (random.one_in(3)) bytes.resize(random.below(bytes.size() + 1));
            for (uint64_t flips = random.below(4); flips > 0 && !bytes.empty(); --flips)
                bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1u << random.below(8));
        }
        p.net.now += 100us;
        to.endpoint->on_datagram(p.net.now, to.address, random.one_in(4) ? spoofed : from.address, bytes,
                                 static_cast<uint8_t>(random.below(4)),
                                 random.one_in(5) ? random.below(700) : 0);
        if (i % 64 == 0)
            for (Host* h : {&p.a, &p.b}) {
                while (h->endpoint->poll_send(p.net.now, buffer)) {
                }
                while (auto e = h->endpoint->poll_event()) h->events.push_back(*e);
            }
    }
    CHECK(p.a.count(Event::Kind::closed) == 0);
    CHECK(p.b.count(Event::Kind::closed) == 0);
    CHECK(p.b.connection()->last_received_at() == received);  // replays do not keep anybody alive
    CHECK(p.a.endpoint->stats().connections < 300);
    // What was sent meanwhile was lost: the connection repairs it.
    p.a.connection()->write(Class::rpc, std::vector<std::byte>(1000, std::byte{8}));
    REQUIRE(p.net.run([&] { return p.b.inbox().bytes[1].size() == 1000; }));
    p.net.pass(10s);
    CHECK(p.b.endpoint->stats().half_open == 0);
}

// RFC 9001 section 8.2. One datagram, from an address that need not exist.
TEST_CASE("a ClientHello without QUIC's parameters is refused", "[quic]") {
    for (const std::string_view alpn : {quic::alpn_nexar, quic::alpn_join})
        for (const bool has_parameters : {false, true}) {
            CAPTURE(alpn, has_parameters);
            const Octets none;
            quic::Config config;
            config.accept_join = true;
            Network net(33);
            Host& a = net.add(1, {}, identity(1), accept_all);
            Host& b = net.add(2, config, identity(2), accept_all);
            b.endpoint->on_datagram(net.now, b.address, *Address::parse("10.9.9.9:1"),
                                    initial_packet(client_hello(alpn, has_parameters ? &none : nullptr)));
            net.run([&] { return b.last(Event::Kind::refused) != nullptr; }, 1s);
            CHECK(b.count(Event::Kind::connected) == 0);
            if (!has_parameters) {
                REQUIRE(b.last(Event::Kind::refused));
                CHECK(b.last(Event::Kind::refused)->close.reason.find("no transport parameters") !=
                      std::string::npos);
            }
            REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
            CHECK(net.run([&] { return b.count(Event::Kind::connected) == 1; }));
        }
}

TEST_CASE("forged beginnings fill no more than their limit, cost a Retry, and honest nodes get in",
          "[quic]") {
    quic::Config config;
    config.retry_after_half_open = 8;
    config.half_open_max = 16;
    Network net(32);
    Host& a = net.add(1, {}, identity(1), accept_all);
    Host& b = net.add(2, config, identity(2), accept_all);
    // Real first packets of many dials, sent from addresses that do not answer.
    std::vector<std::vector<std::byte>> firsts;
    net.tap = [&](const Packet& packet) {
        if (packet.to == b.address && packet.bytes.size() >= 1200) firsts.push_back(packet.bytes);
    };
    net.weather.lose_one_in = 1;
    for (int i = 0; i < 60; ++i)
        REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
    net.run([] { return false; }, 1ms);
    net.tap = nullptr;
    REQUIRE(firsts.size() >= 60);
    net.weather.lose_one_in = 0;
    for (size_t i = 0; i < firsts.size(); ++i)
        b.endpoint->on_datagram(net.now, b.address,
                                *Address::parse("10.1.1." + std::to_string(i % 250) + ":99"), firsts[i]);
    CHECK(b.endpoint->stats().half_open == 8);
    CHECK(b.endpoint->stats().retries_sent >= 40);

    Host& honest = net.add(3, {}, identity(3), accept_all);
    REQUIRE(honest.endpoint->connect(net.now, honest.address, b.address, quic::alpn_nexar));
    REQUIRE(net.run([&] { return honest.connection(); }, 100ms));
    net.pass(8s);
    CHECK(b.endpoint->stats().half_open == 0);
}

TEST_CASE("one host cannot take all half-open places, even with its address proved", "[quic]") {
    quic::Config config;
    config.retry_after_half_open = 0;
    config.half_open_per_host_max = 4;
    Network net(33);
    quic::Config slow;
    slow.handshake_timeout = 60s;
    Host& a = net.add(1, slow, identity(1), accept_all);
    Host& b = net.add(2, config, identity(2), accept_all);
    // The attacker answers the Retry and then stops: its later packets are lost.
    for (int i = 0; i < 12; ++i)
        REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
    net.run([&] { return b.endpoint->stats().half_open >= 4; }, 1s);
    CHECK(b.endpoint->stats().retries_sent >= 4);
    CHECK(b.endpoint->stats().half_open == 4);
    net.run([&] { return a.count(Event::Kind::closed) > 0; }, 1s);
    REQUIRE(a.last(Event::Kind::closed));
    CHECK(a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::refused_by_peer);
    CHECK(b.endpoint->stats().handshakes_over_limit > 0);
}

TEST_CASE("Retry is not answered with a stolen or stale token", "[quic]") {
    quic::Config config;
    config.retry_after_half_open = 0;
    Network net(34);
    Host& a = net.add(1, {}, identity(1), accept_all);
    Host& b = net.add(2, config, identity(2), accept_all);
    std::vector<std::byte> with_token;
    size_t from_a = 0;
    net.tap = [&](const Packet& packet) {
        if (packet.to == b.address && ++from_a == 2) with_token = packet.bytes;  // the first after the Retry
    };
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
    REQUIRE(net.run([&] { return a.connection(); }));
    net.tap = nullptr;
    a.connection()->close(20, "");
    net.pass(5s);
    const size_t connections = b.endpoint->stats().connections;
    b.endpoint->on_datagram(net.now, b.address, *Address::parse("10.3.3.3:7"),
                            with_token);  // another address
    CHECK(b.endpoint->stats().connections == connections);
    net.now += 30s;
    b.endpoint->on_datagram(net.now, b.address, a.address, with_token);  // too late
    CHECK(b.endpoint->stats().connections == connections);
    CHECK(b.endpoint->stats().refusals_sent == 2);
}

TEST_CASE("stateless answers are limited per second", "[quic]") {
    quic::Config config;
    config.stateless_replies_per_second = 20;
    Network net(35);
    Host& b = net.add(2, config, identity(2), accept_all);
    std::vector<std::byte> unknown(100, std::byte{0x41}), version(1300, std::byte{0xc1});
    std::vector<std::byte> buffer(quic::Endpoint::send_buffer_bytes);
    size_t answers = 0;
    for (int i = 0; i < 500; ++i) {
        unknown[5] = static_cast<std::byte>(i);
        b.endpoint->on_datagram(net.now, b.address, *Address::parse("10.4.4.4:7"), i % 2 ? unknown : version);
        while (auto batch = b.endpoint->poll_send(net.now, buffer)) {
            ++answers;
            CHECK(batch->bytes < (i % 2 ? unknown : version).size());
        }
    }
    CHECK(answers == 20);
    CHECK(b.endpoint->stats().replies_suppressed > 400);
}

TEST_CASE("an endpoint that does not listen answers nobody", "[quic]") {
    quic::Config config;
    config.listen = false;
    Network net(36);
    Host& a = net.add(1, {}, identity(1), accept_all);
    Host& b = net.add(2, config, identity(2), accept_all);
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
    CHECK_FALSE(net.run([&] { return a.connection(); }, 1s));
    CHECK(b.endpoint->stats().connections == 0);
}

TEST_CASE("packets of a connection from another address are dropped", "[quic]") {
    Pair p(37);
    std::vector<std::byte> last;
    REQUIRE(p.connect());
    p.net.pass(100ms);
    p.net.tap = [&](const Packet& packet) {
        if (packet.to == p.b.address) last = packet.bytes;
    };
    p.net.weather.lose_one_in = 1;
    p.a.connection()->write(Class::rpc, test::bytes_of("hello"));
    p.net.pass(1ms);
    REQUIRE_FALSE(last.empty());
    p.b.endpoint->on_datagram(p.net.now, p.b.address, *Address::parse("10.5.5.5:4433"), last);
    CHECK(p.b.inbox().bytes[1].empty());
    CHECK(p.b.endpoint->stats().datagrams_wrong_address == 1);
    p.b.endpoint->on_datagram(p.net.now, p.b.address, p.a.address, last);
    CHECK(p.b.inbox().bytes[1].size() == 5);
}

TEST_CASE("forged ICMP ends no connection that stands, and costs a probe now and then", "[quic][H4]") {
    Pair p(38);
    REQUIRE(p.connect());
    p.net.pass(1s);
    const uint64_t before = p.net.datagrams;
    for (int i = 0; i < 3000; ++i) {  // for 3 s
        p.a.endpoint->on_unreachable(p.net.now, p.b.address);
        p.b.endpoint->on_unreachable(p.net.now, p.a.address);
        p.net.pass(1ms);
    }
    CHECK(p.net.datagrams > before);
    CHECK(p.net.datagrams - before <= 80);  // two sides, a probe and its answer every quarter of a second
    p.net.pass(2s);
    CHECK(p.a.count(Event::Kind::closed) + p.b.count(Event::Kind::closed) == 0);
    p.a.connection()->write(Class::rpc, test::bytes_of("still here"));
    REQUIRE(p.net.run([&] { return p.b.inbox().bytes[1].size() == 10; }));
    CHECK(p.a.endpoint->wake_at() > p.net.now);
}

TEST_CASE("ICMP and no answer end a connection within half a second", "[quic][H4]") {
    Pair p(39);
    REQUIRE(p.connect());
    p.net.pass(1s);
    p.net.weather.lose_one_in = 1;
    const Time since = p.net.now;
    p.a.endpoint->on_unreachable(p.net.now, p.b.address);
    REQUIRE(p.net.run([&] { return p.a.last(Event::Kind::closed); }, 5s));
    CHECK(p.net.now - since <= 500ms);
    CHECK(p.net.now - since >= 200ms);
    const CloseInfo& end = p.a.last(Event::Kind::closed)->close;
    CHECK(end.code == static_cast<uint64_t>(quic::CloseCode::unreachable));
    CHECK(end.cause == CloseInfo::Cause::idle);
    CHECK(p.b.count(Event::Kind::closed) == 0);
}

TEST_CASE("a dial without a handshake ends at once when ICMP says so, and only that of this address",
          "[quic][H4]") {
    Pair p(40);
    p.net.weather.lose_one_in = 1;
    p.dial();
    p.net.pass(10ms);
    p.a.endpoint->on_unreachable(p.net.now, *Address::parse("10.0.0.2:4434"));
    p.net.pass(10ms);
    CHECK(p.a.count(Event::Kind::closed) == 0);
    p.a.endpoint->on_unreachable(p.net.now, p.b.address);
    REQUIRE(p.net.run([&] { return p.a.last(Event::Kind::closed); }, 10ms));
}

TEST_CASE("a few addresses cannot hold all places of joiners", "[quic][H16]") {
    quic::Config config;
    config.accept_join = true;
    config.join_connections_max = 16;
    Network net(41);
    Host& issuer = net.add(1, config, identity(2), accept_all);
    issuer.attach_receivers = false;
    std::vector<Host*> hostile;
    for (uint8_t i = 0; i < 4; ++i) hostile.push_back(&net.add(10 + i, {}, {}, accept_all));
    const auto open = [](const Host& host) {
        size_t n = 0;
        for (const Event& e : host.events)
            if (e.kind == Event::Kind::connected)
                if (quic::Connection* c = host.endpoint->find(e.conn)) n += c->is_open();
        return n;
    };
    // They dial again whenever they are refused, and say nothing.
    for (int turn = 0; turn < 8; ++turn) {
        for (Host* h : hostile)
            for (int i = 0; i < 6; ++i)
                REQUIRE(h->endpoint->connect(net.now, h->address, issuer.address, quic::alpn_join));
        net.pass(100ms);
    }
    size_t held = 0;
    for (Host* h : hostile) held += open(*h);
    REQUIRE(held == 16);

    std::vector<Host*> honest;
    for (uint8_t i = 0; i < 3; ++i) {
        honest.push_back(&net.add(100 + i, {}, {}, accept_all));
        REQUIRE(honest[i]->endpoint->connect(net.now, honest[i]->address, issuer.address, quic::alpn_join));
        REQUIRE(net.run([&] { return honest[i]->connection() || honest[i]->last(Event::Kind::closed); }, 5s));
        CHECK(honest[i]->connection());
    }
    // And they keep their places against those who dial on.
    for (Host* h : hostile)
        for (int i = 0; i < 10; ++i)
            REQUIRE(h->endpoint->connect(net.now, h->address, issuer.address, quic::alpn_join));
    net.pass(1s);
    for (Host* h : honest) CHECK(open(*h) == 1);
    held = 0;
    for (Host* h : hostile) held += open(*h);
    CHECK(held == 13);
}

TEST_CASE("a few addresses cannot hold all unfinished handshakes", "[quic][H16]") {
    quic::Config config;
    config.retry_after_half_open = 0;
    config.half_open_max = 16;
    config.half_open_per_host_max = 4;
    Network net(42);
    quic::Config slow;
    slow.handshake_timeout = 60s;
    Host& b = net.add(1, config, identity(2), accept_all);
    // They prove their addresses and then fall silent: only Retry and its answer arrive.
    std::vector<Host*> hostile;
    for (uint8_t i = 0; i < 4; ++i) hostile.push_back(&net.add(10 + i, slow, identity(1), accept_all));
    for (Host* h : hostile)
        for (int i = 0; i < 6; ++i)
            REQUIRE(h->endpoint->connect(net.now, h->address, b.address, quic::alpn_nexar));
    REQUIRE(net.run([&] { return b.endpoint->stats().half_open == 16; }, 1s));
    net.run([&] { return true; }, 0s);
    net.weather.lose_one_in = 1;
    net.pass(1ms);
    REQUIRE(b.endpoint->stats().half_open == 16);
    net.weather.lose_one_in = 0;

    Host& honest = net.add(100, {}, identity(3), accept_all);
    for (Host* h : hostile) h->address = *Address::parse("10.9.9.9:9");  // nothing reaches them any more
    REQUIRE(honest.endpoint->connect(net.now, honest.address, b.address, quic::alpn_nexar));
    REQUIRE(net.run([&] { return honest.connection() || honest.last(Event::Kind::closed); }, 2s));
    CHECK(honest.connection());
}
