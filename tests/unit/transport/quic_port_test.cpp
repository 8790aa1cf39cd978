// QUIC over real loopback sockets.
#include "transport/quic_port.hpp"

#include <poll.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdio>

#include "support/test_certs.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using quic::Event;
using transport::QuicPort;

namespace {

Time clock_now() {
    return Time(std::chrono::steady_clock::now().time_since_epoch());
}

const test::CertificateAuthority& ca() {
    static const test::CertificateAuthority one("root");
    return one;
}

struct Peer final : quic::Receiver {
    test::Leaf leaf = ca().issue("node");
    std::unique_ptr<QuicPort> port;
    quic::Connection* connection = nullptr;
    std::vector<Event> events;
    uint64_t bytes = 0;
    bool wrong = false;
    bool busy = false;

    Peer(const char* where, transport::UdpSocket::Options socket, size_t payload_max) {
        QuicPort::Options options;
        options.listen = *quic::Address::parse(where);
        options.socket = socket;
        options.quic.udp_payload_max = payload_max;
        auto judge = [](const quic::PeerChain& chain, std::string_view) {
            return test::node_id_of(chain.front());
        };
        auto made = QuicPort::open(
            std::move(options), {leaf.certificate_pem, leaf.private_key_pem, ca().certificate_pem()}, judge);
        if (!made) FAIL(made.error().text);
        port = std::move(*made);
    }
    static std::byte at(uint64_t i) { return static_cast<std::byte>((i >> 3) * 0x9e3779b97f4a7c15u >> 56); }
    void on_bytes(Class, Bytes b) override {
        for (const size_t i : {size_t{0}, b.size() / 2, b.size() - 1}) wrong = wrong || b[i] != at(bytes + i);
        bytes += b.size();
    }
    void turn(Time now) {
        busy = port->on_readable(now);
        if (port->wake_at() <= now) port->on_time(now);
        while (auto e = port->poll_event()) {
            if (e->kind == Event::Kind::connected) {
                connection = port->endpoint().find(e->conn);
                connection->set_receiver(this);
            }
            if (e->kind == Event::Kind::closed) connection = nullptr;
            events.push_back(std::move(*e));
        }
        busy = port->flush(now) || busy;
    }
};

// Drives both until done, at most 20 s.
template <class Done>
bool drive(Peer& a, Peer& b, Done done) {
    const Time end = clock_now() + 20s;
    while (!done()) {
        Time now = clock_now();
        if (now > end) return false;
        a.turn(now);
        b.turn(now);
        if (a.busy || b.busy) continue;
        const auto events = [](Peer& p) {
            return static_cast<short>(POLLIN | (p.port->wants_writable() ? POLLOUT : 0));
        };
        pollfd p[2] = {{a.port->fd(), events(a), 0}, {b.port->fd(), events(b), 0}};
        const Duration wait =
            std::clamp<Duration>(std::min(a.port->wake_at(), b.port->wake_at()) - clock_now(), 0ns, 100ms);
        const timespec t{0, wait.count()};
        ppoll(p, 2, &t, nullptr);
    }
    return true;
}

void transfer(transport::UdpSocket::Options socket, size_t payload_max, const char* where, const char* what) {
    Peer a(where, socket, payload_max), b(where, socket, payload_max);
    quic::Address to = *quic::Address::parse("127.0.0.1:0");
    to.port = b.port->local().port;
    REQUIRE(a.port->connect(clock_now(), to, quic::alpn_nexar, b.leaf.id));
    REQUIRE(drive(a, b, [&] { return a.connection && b.connection; }));
    CHECK(b.connection->peer() == a.leaf.id);
    constexpr uint64_t total = 64u << 20;
    std::vector<std::byte> piece(256 << 10);
    uint64_t written = 0;
    const Time begin = clock_now();
    REQUIRE(drive(a, b, [&] {
        while (written < total && a.connection->room(Class::bulk) >= piece.size()) {
            for (size_t i = 0; i < piece.size(); ++i) piece[i] = Peer::at(written + i);
            a.connection->write(Class::bulk, piece);
            written += piece.size();
        }
        return b.bytes == total;
    }));
    const double seconds = std::chrono::duration<double>(clock_now() - begin).count();
    CHECK_FALSE(b.wrong);
    const quic::ConnectionStats s = a.connection->stats();
    std::printf(
        "%-34s %5.1f Gbit/s (one thread for both ends, with filling), payload %zu, %llu lost, buffer %zu "
        "KiB\n",
        what, static_cast<double>(total) * 8e-9 / seconds, s.udp_payload,
        static_cast<unsigned long long>(s.packets_lost), a.port->socket_stats().receive_buffer >> 10);
    a.connection->close(20, "done");
    REQUIRE(drive(a, b, [&] { return !b.connection; }));
    CHECK(b.events.back().close.reason == "done");
}

}  // namespace

TEST_CASE("64 MiB cross real sockets whole", "[transport]") {
    transfer({}, 65507, "127.0.0.1:0", "probing to 65507");
    transfer({}, 1452, "127.0.0.1:0", "1452");
    transfer({}, 1452, "0.0.0.0:0", "1452, wildcard sockets");
    transfer({.segmentation = false, .coalescing = false}, 1452, "127.0.0.1:0", "1452, no GSO, no GRO");
    transfer({.buffer_bytes = 64 << 10}, 1452, "127.0.0.1:0", "1452, 64 KiB socket buffers");
}

TEST_CASE("ICMP reports a peer that crashed, and its successor resets the connection", "[transport]") {
    Peer a("127.0.0.1:0", {}, 1452);
    auto b = std::make_unique<Peer>("127.0.0.1:0", transport::UdpSocket::Options{}, 1452);
    const quic::Address where = b->port->local();
    REQUIRE(a.port->connect(clock_now(), where, quic::alpn_nexar));
    REQUIRE(drive(a, *b, [&] { return a.connection && b->connection; }));
    b.reset();
    a.connection->write(Class::control, std::as_bytes(std::span("beat")));
    std::optional<quic::Address> who;
    for (int i = 0; i < 2000 && !who; ++i) {
        a.turn(clock_now());
        who = a.port->poll_unreachable();
        pollfd p{a.port->fd(), POLLIN, 0};
        if (!who) poll(&p, 1, 10);
    }
    REQUIRE(who);
    CHECK(*who == where);
    CHECK(a.connection);  // only a hint
}
