// Handshake bytes at another encryption level than theirs (RFC 9001 section 4.1.3): a peer whose TLS library
// is honest, but whose bytes are sent at the levels that a test chooses.
#include <ngtcp2/ngtcp2.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <span>

#include "initial_packet.hpp"
#include "network.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

using Level = ngtcp2_encryption_level;
constexpr Level initial = NGTCP2_ENCRYPTION_LEVEL_INITIAL, handshake = NGTCP2_ENCRYPTION_LEVEL_HANDSHAKE,
                one_rtt = NGTCP2_ENCRYPTION_LEVEL_1RTT;
constexpr uint64_t unexpected_message = 0x10a;  // CRYPTO_ERROR of TLS's alert 10 (RFC 9001 section 4.8)
constexpr uint8_t ticket_type = 4;

// Takes what a connection is to send; empty: all is sent as the library wants it.
using Sender = std::function<void(ngtcp2_conn*, Level, std::span<const uint8_t>)>;
Sender sender;

struct SenderScope {
    explicit SenderScope(Sender s) { sender = std::move(s); }
    ~SenderScope() { sender = nullptr; }
};

}  // namespace

extern "C" {
int __real_ngtcp2_conn_submit_crypto_data(ngtcp2_conn*, Level, const uint8_t*, size_t);
int __wrap_ngtcp2_conn_submit_crypto_data(ngtcp2_conn* conn, Level level, const uint8_t* data, size_t size) {
    if (!sender) return __real_ngtcp2_conn_submit_crypto_data(conn, level, data, size);
    sender(conn, level, {data, size});
    return 0;
}
}

namespace {

void send_at(ngtcp2_conn* conn, Level level, std::span<const uint8_t> bytes) {
    if (!bytes.empty())
        REQUIRE(__real_ngtcp2_conn_submit_crypto_data(conn, level, bytes.data(), bytes.size()) == 0);
}

// A flight's bytes from `from` to `to` are sent as Initial ones.
struct Cut {
    size_t from, to;
};
constexpr size_t whole = SIZE_MAX;
constexpr Cut cuts[] = {{0, whole}, {0, 1}, {0, 4}, {0, 10}, {1, whole}, {10, whole}, {35, whole}, {4, 5}};

void send_cut(ngtcp2_conn* conn, std::span<const uint8_t> flight, Cut cut) {
    const size_t from = std::min(cut.from, flight.size()), to = std::min(cut.to, flight.size());
    send_at(conn, handshake, flight.first(from));
    send_at(conn, initial, flight.subspan(from, to - from));
    send_at(conn, handshake, flight.subspan(to));
}

bool is_finished(std::span<const uint8_t> message) {
    constexpr uint8_t finished_type = 20;
    return !message.empty() && message[0] == finished_type;
}

quic::Config accepting_joiners() {
    quic::Config config;
    config.accept_join = true;
    return config;
}

}  // namespace

TEST_CASE("a dialler's handshake bytes at the Initial level are refused", "[quic]") {
    for (const std::string_view alpn : {quic::alpn_nexar, quic::alpn_join})
        for (const Cut cut : cuts) {
            CAPTURE(alpn, cut.from, cut.to);
            Pair p(51, accepting_joiners());
            Octets flight;
            const SenderScope scope([&](ngtcp2_conn* conn, Level level, std::span<const uint8_t> bytes) {
                if (ngtcp2_conn_is_server(conn) || level != handshake) return send_at(conn, level, bytes);
                flight.insert(flight.end(), bytes.begin(), bytes.end());
                if (is_finished(bytes)) send_cut(conn, flight, cut);
            });
            p.dial(alpn);
            p.net.run([&] { return p.b.last(Event::Kind::refused) != nullptr; }, 3s);
            REQUIRE(!flight.empty());
            CHECK(p.b.count(Event::Kind::connected) == 0);
            CHECK(p.a.count(Event::Kind::connected) == 0);
            REQUIRE(p.b.last(Event::Kind::refused));
            CHECK(p.b.last(Event::Kind::refused)->close.code == unexpected_message);
            REQUIRE(p.net.run([&] { return p.a.last(Event::Kind::closed); }, 1s));
            CHECK(p.a.last(Event::Kind::closed)->close.code == unexpected_message);
            p.net.pass(2s);
        }
}

TEST_CASE("an acceptor's handshake bytes at the Initial level are refused", "[quic]") {
    for (const bool at_once : {true, false})  // with the ServerHello, or when the dialler has it
        for (const Cut cut : cuts) {
            CAPTURE(at_once, cut.from, cut.to);
            if (at_once && cut.from > 0) continue;  // the dialler can read nothing of it before the rest
            Pair p(52);
            Octets flight;
            ngtcp2_conn* acceptor = nullptr;
            const SenderScope scope([&](ngtcp2_conn* conn, Level level, std::span<const uint8_t> bytes) {
                if (!ngtcp2_conn_is_server(conn) || level != handshake) return send_at(conn, level, bytes);
                flight.insert(flight.end(), bytes.begin(), bytes.end());
                if (!is_finished(bytes)) return;
                acceptor = conn;
                if (at_once) send_cut(conn, flight, cut);
            });
            p.dial();
            if (!at_once) {
                p.net.pass(150us);
                REQUIRE(acceptor);
                send_cut(acceptor, flight, cut);
            }
            p.net.run([&] { return p.a.last(Event::Kind::closed) != nullptr; }, 3s);
            CHECK(p.a.count(Event::Kind::connected) == 0);
            CHECK(p.b.count(Event::Kind::connected) == 0);
            REQUIRE(p.a.last(Event::Kind::closed));
            CHECK(p.a.last(Event::Kind::closed)->close.code == unexpected_message);
            p.net.pass(2s);
        }
}

TEST_CASE("what follows the handshake is refused at its levels", "[quic]") {
    for (const Level level : {initial, handshake, one_rtt}) {
        CAPTURE(level);
        Pair p(53);
        ngtcp2_conn* acceptor = nullptr;
        const Octets ticket{ticket_type, 0, 0, 14, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 1, 7, 0, 0};
        const SenderScope scope([&](ngtcp2_conn* conn, Level wanted, std::span<const uint8_t> bytes) {
            send_at(conn, wanted, bytes);
            if (!ngtcp2_conn_is_server(conn)) return;
            acceptor = conn;
            if (level != one_rtt && is_finished(bytes)) send_at(conn, level, ticket);
        });
        p.dial();
        if (level == one_rtt) {
            REQUIRE(p.net.run([&] { return p.a.connection() && p.b.connection(); }));
            send_at(acceptor, level, ticket);
            p.b.connection()->write(Class::rpc, test::bytes_of("behind the ticket"));
        }
        p.net.run([&] { return p.a.last(Event::Kind::closed) != nullptr; }, 3s);
        REQUIRE(p.a.last(Event::Kind::closed));
        const CloseInfo& end = p.a.last(Event::Kind::closed)->close;
        CHECK(end.cause == CloseInfo::Cause::refused_here);
        if (level == one_rtt)
            CHECK(end.reason.contains("session tickets"));
        else
            CHECK(end.code == unexpected_message);
    }
}

TEST_CASE("the library's own refusals are named as well", "[quic]") {
    CHECK(quic::alert_text(10) == "unexpected_message");
    CHECK(quic::alert_text(109) == "missing_extension");
    CHECK(quic::alert_text(116) == "certificate_required");
    CHECK(quic::alert_text(250) == "alert_250");

    Pair p(55);
    ngtcp2_conn* dialler = nullptr;
    const SenderScope scope([&](ngtcp2_conn* conn, Level level, std::span<const uint8_t> bytes) {
        send_at(conn, level, bytes);
        if (!ngtcp2_conn_is_server(conn)) dialler = conn;
    });
    p.dial();
    REQUIRE(p.net.run([&] { return p.a.connection() && p.b.connection(); }));
    const Octets key_update{24, 0, 0, 1, 0};  // RFC 9001 section 6: never over QUIC
    send_at(dialler, one_rtt, key_update);
    p.a.connection()->write(Class::rpc, test::bytes_of("behind the key update"));
    REQUIRE(p.net.run([&] { return p.b.last(Event::Kind::closed) != nullptr; }, 3s));
    const CloseInfo& end = p.b.last(Event::Kind::closed)->close;
    CHECK(end.code == unexpected_message);
    CHECK(end.reason.contains("may not come then"));
}

// The TLS library looks for bytes behind a message in the same buffer only, and the glue's have 4096 bytes.
TEST_CASE("bytes behind a ClientHello are refused, wherever a buffer ends", "[quic]") {
    const Octets source{0x0f, 8, 8, 7, 6, 5, 4, 3, 2, 1};  // initial_source_connection_id
    for (const size_t size : {size_t{0}, size_t{4000}, size_t{4096}})
        for (const bool has_more : {false, true}) {
            CAPTURE(size, has_more);
            Network net(54);
            Host& b = net.add(2, accepting_joiners(), identity(2), accept_all);
            Octets hello = client_hello(quic::alpn_join, &source, size);
            REQUIRE((size == 0 || hello.size() == size));
            if (has_more) hello.insert(hello.end(), {0x14, 0, 0, 0x20});  // a Finished begins
            b.endpoint->on_datagram(net.now, b.address, *Address::parse("10.9.9.9:1"), initial_packet(hello));
            net.run([&] { return b.last(Event::Kind::refused) != nullptr; }, 1s);
            CHECK((b.last(Event::Kind::refused) != nullptr) == has_more);
            if (b.last(Event::Kind::refused))
                CHECK(b.last(Event::Kind::refused)->close.code == unexpected_message);
        }
}
