// Who may connect, who is refused, and the reason that each side receives; how connections end.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "network.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

// Dials and waits for the end.
const CloseInfo& refused_dial(Pair& p, std::string_view alpn = quic::alpn_nexar,
                              std::optional<NodeId> expected = {}) {
    p.dial(alpn, expected);
    REQUIRE(p.net.run([&] { return p.a.last(Event::Kind::closed); }));
    CHECK(p.a.count(Event::Kind::connected) == 0);
    p.net.pass(2s);
    CHECK(p.b.count(Event::Kind::connected) == 0);
    CHECK(p.a.endpoint->stats().connections == 0);
    CHECK(p.b.endpoint->stats().connections == 0);
    return p.a.last(Event::Kind::closed)->close;
}

}  // namespace

TEST_CASE("two members connect and each learns the other's id", "[quic]") {
    Pair p(1);
    REQUIRE(p.connect());
    CHECK(p.a.connection()->peer() == leaf(2).id);
    CHECK(p.b.connection()->peer() == leaf(1).id);
    CHECK(p.a.last(Event::Kind::connected)->we_dialled);
    CHECK_FALSE(p.b.last(Event::Kind::connected)->we_dialled);
    CHECK(p.a.last(Event::Kind::connected)->alpn == "nexar/2");
    CHECK(p.a.connection()->stats().cipher == "TLS_AES_128_GCM_SHA256");
    CHECK(p.b.connection()->peer_chain().size() == 2);
}

TEST_CASE("a lossy network delays a handshake but does not prevent it", "[quic]") {
    for (uint64_t seed = 1; seed <= 10; ++seed) {
        CAPTURE(seed);
        Pair p(seed);
        p.net.weather = {4, 5, 20, 100us, 3ms, 1500};
        REQUIRE(p.connect());
    }
}

TEST_CASE("the dialled node must be the expected one", "[quic]") {
    Pair p(2);
    p.dial(quic::alpn_nexar, leaf(2).id);
    REQUIRE(p.net.run([&] { return p.a.connection() && p.b.connection(); }));

    Pair q(3);
    const CloseInfo& end = refused_dial(q, quic::alpn_nexar, leaf(3).id);
    CHECK(end.cause == CloseInfo::Cause::refused_here);
    CHECK(has(end.reason, leaf(3).id.short_hex()));
    CHECK(has(end.reason, leaf(2).id.short_hex()));
    REQUIRE(q.b.last(Event::Kind::refused));
    CHECK(q.b.last(Event::Kind::refused)->close.cause == CloseInfo::Cause::refused_by_peer);
}

TEST_CASE("a certificate of another authority is refused by either side", "[quic][A1]") {
    const CertificateAuthority other("other root");
    const Leaf foreigner = other.issue("foreigner");
    SECTION("the dialler's") {
        Network net(4);
        Host& b = net.add(2, {}, identity(2), accept_all);
        Host& a = net.add(1, {},
                          {foreigner.certificate_pem, foreigner.private_key_pem, test_ca().certificate_pem()},
                          accept_all);
        REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
        REQUIRE(net.run([&] { return a.last(Event::Kind::closed) && b.last(Event::Kind::refused); }));
        CHECK(a.count(Event::Kind::connected) == 0);
        CHECK(a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::refused_by_peer);
        CHECK(b.last(Event::Kind::refused)->close.cause == CloseInfo::Cause::refused_here);
        CHECK(b.last(Event::Kind::refused)->remote == a.address);
        CHECK(b.endpoint->stats().handshakes_refused == 1);
    }
    SECTION("the answering side's") {
        Network net(5);
        Host& b = net.add(2, {},
                          {foreigner.certificate_pem, foreigner.private_key_pem, test_ca().certificate_pem()},
                          accept_all);
        Host& a = net.add(1, {}, identity(1), accept_all);
        REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
        REQUIRE(net.run([&] { return a.last(Event::Kind::closed); }));
        CHECK(a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::refused_here);
        CHECK(b.count(Event::Kind::connected) == 0);
    }
}

TEST_CASE("an expired certificate is refused, by the clock that was handed in", "[quic]") {
    for (const bool later : {false, true}) {
        quic::Config config;
        config.wall_clock = [later] {
            return WallSeconds(time(nullptr) + (later ? 5000 : 0));
        };  // leaves: 3600 s
        Pair p(6, config);
        if (later) {
            CHECK(has(refused_dial(p).reason, "expired"));
        } else {
            REQUIRE(p.connect());
        }
    }
}

TEST_CASE("a connection ends when the certificate ends that it began with, by the clock that was handed in",
          "[quic][A11]") {
    WallSeconds wall = time(nullptr);
    quic::Config config;
    config.wall_clock = [&wall] { return wall; };  // leaves: 3600 s
    config.idle_timeout = 24h;
    Pair p(6, config);
    REQUIRE(p.connect());
    const auto peer_end = [](Host& host) {
        const auto end = host.endpoint->find(host.last(Event::Kind::connected)->conn)->peer_valid_until();
        REQUIRE(end);
        return *end;
    };
    // The two leaves are issued one after the other, so they may end in different seconds.
    const auto [first, last] = std::minmax({peer_end(p.a), peer_end(p.b)});
    CHECK((first > wall && last <= time(nullptr) + 3600));

    wall = first;
    p.net.run([] { return false; }, 4000s);  // the monotonic clock alone ends nothing
    CHECK(p.a.last(Event::Kind::closed) == nullptr);
    wall = last + 1;
    REQUIRE(p.net.run([&] { return p.a.last(Event::Kind::closed) && p.b.last(Event::Kind::closed); }, 4000s));
    bool has_ended = false;
    for (Host* host : {&p.a, &p.b})
        has_ended |= has(host->last(Event::Kind::closed)->close.reason, "has ended");
    CHECK(has_ended);
}

TEST_CASE("a dialler without a certificate is refused as a member and cannot even try", "[quic]") {
    Network net(7);
    Host& a = net.add(1, {}, {"", {}, test_ca().certificate_pem()}, accept_all);
    Host& b = net.add(2, {}, identity(2), accept_all);
    const auto id = a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar);
    REQUIRE_FALSE(id);
    CHECK(id.error().code == Errc::bad_certificate);
}

TEST_CASE("a dialler that shows no certificate is refused by the answering side", "[quic]") {
    quic::Config config;
    config.sabotage.dial_without_certificate = true;
    Network net(8);
    Host& b = net.add(2, {}, identity(2), accept_all);
    Host& a = net.add(1, config, {"", {}, test_ca().certificate_pem()}, accept_all);
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
    REQUIRE(net.run([&] { return a.last(Event::Kind::closed) && b.last(Event::Kind::refused); }));
    CHECK(a.count(Event::Kind::connected) == 0);
    CHECK(a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::refused_by_peer);
    CHECK(a.last(Event::Kind::closed)->close.code == 0x100 + 116);  // certificate_required
    net.pass(1s);
    CHECK(b.count(Event::Kind::connected) == 0);
}

TEST_CASE("a node that issues no certificates refuses joiners", "[quic]") {
    Network net(8);
    Host& b = net.add(2, {}, identity(2), accept_all);
    Host& a = net.add(1, {}, {}, accept_all);
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_join));
    REQUIRE(net.run([&] { return a.last(Event::Kind::closed); }));
    CHECK(a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::refused_by_peer);
    CHECK(has(b.last(Event::Kind::refused)->close.reason, "nexar-join"));
    CHECK(b.count(Event::Kind::connected) == 0);
}

TEST_CASE("the verifier's refusal ends the handshake with its reason, on either side", "[quic]") {
    auto refuse = [](const quic::PeerChain&, std::string_view) -> Result<NodeId> {
        return fail(Errc::bad_certificate, "that node was removed");
    };
    SECTION("the dialler's") {
        Pair p(9, {}, refuse, accept_all);
        const CloseInfo& end = refused_dial(p);
        CHECK(end.cause == CloseInfo::Cause::refused_here);
        CHECK(end.reason == "that node was removed");
    }
    SECTION("the answering side's") {
        Pair p(10, {}, accept_all, refuse);
        const CloseInfo& end = refused_dial(p);
        CHECK(end.cause == CloseInfo::Cause::refused_by_peer);
        CHECK(has(end.reason, "that node was removed"));
        REQUIRE(p.b.last(Event::Kind::refused));
        CHECK(p.b.last(Event::Kind::refused)->close.reason == "that node was removed");
    }
}

TEST_CASE("a protocol that the other side does not speak is refused", "[quic]") {
    Pair p(11);
    const CloseInfo& end = refused_dial(p, "nexar/99");
    CHECK(end.cause == CloseInfo::Cause::refused_by_peer);
    CHECK(end.code == 0x100 + 120);  // no_application_protocol
    const std::string& text = p.b.last(Event::Kind::refused)->close.reason;
    CHECK(text == "the dialler speaks nexar/99; this daemon speaks nexar/2: upgrade this one");
}

TEST_CASE("a peer that speaks nexar/1 is refused with a text that says what to do, on both sides", "[quic]") {
    SECTION("it dials") {
        Pair p(11);
        const CloseInfo& end = refused_dial(p, "nexar/1");
        const std::string text =
            "the dialler speaks nexar/1; this daemon speaks nexar/2: upgrade the dialler";
        CHECK(end.cause == CloseInfo::Cause::refused_by_peer);
        CHECK(end.code == 0x100 + 120);
        CHECK(has(end.reason, text));  // also an old one shows the reason that it receives
        CHECK(p.b.last(Event::Kind::refused)->close.reason == text);
    }
    SECTION("it is dialled") {
        quic::Config old;
        old.alpns = {"nexar/1"};
        Network net(14);
        Host& a = net.add(1, {}, identity(1), accept_all);
        Host& b = net.add(2, old, identity(2), accept_all);
        REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
        REQUIRE(net.run([&] { return a.last(Event::Kind::closed) && b.last(Event::Kind::refused); }));
        const CloseInfo& end = a.last(Event::Kind::closed)->close;
        CHECK(end.cause == CloseInfo::Cause::refused_by_peer);
        CHECK(has(end.reason,
                  "does not speak nexar/2, as this daemon does: upgrade the older of the two (TLS alert"));
        CHECK(a.count(Event::Kind::connected) + b.count(Event::Kind::connected) == 0);
    }
}

TEST_CASE("two versions of the protocol: the accepting side speaks both", "[quic]") {
    quic::Config config;
    config.alpns = {"nexar/2", "nexar/1"};
    Network net(12);
    Host& a = net.add(1, {}, identity(1), accept_all);
    Host& b = net.add(2, config, identity(2), accept_all);
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, "nexar/1"));
    REQUIRE(net.run([&] { return a.connection() && b.connection(); }));
    CHECK(b.connection()->alpn() == "nexar/1");
}

TEST_CASE("a joiner without a certificate reaches an issuer whose key it knows", "[quic]") {
    quic::Config config;
    config.accept_join = true;
    Network net(13);
    bool judged_by_key = false;
    Host& a = net.add(1, {}, {}, [&](const quic::PeerChain& chain, std::string_view alpn) -> Result<NodeId> {
        judged_by_key = alpn == quic::alpn_join && *node_id_of(chain.front()) == leaf(2).id;
        if (!judged_by_key) return fail(Errc::bad_certificate, "not the issuer of the token");
        return leaf(2).id;
    });
    Host& b = net.add(2, config, identity(2), accept_all);
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_join));
    REQUIRE(net.run([&] { return a.connection() && b.connection(); }));
    CHECK(judged_by_key);
    CHECK(a.connection()->peer() == leaf(2).id);
    CHECK(b.connection()->peer().is_zero());
    CHECK(b.last(Event::Kind::connected)->alpn == quic::alpn_join);

    // Messages of 64 KiB with a length go both ways on the control class.
    const std::vector<std::byte> request(64 * 1024 + 4, std::byte{7}), answer(64 * 1024 + 4, std::byte{9});
    a.connection()->write(Class::control, request);
    b.connection()->write(Class::control, answer);
    REQUIRE(net.run([&] {
        return b.inbox().bytes[0].size() == request.size() && a.inbox().bytes[0].size() == answer.size();
    }));
    CHECK(b.inbox().bytes[0] == request);
    CHECK(a.inbox().bytes[0] == answer);
}

TEST_CASE("a joiner gets an unidentified peer's window, and only so many join at once", "[quic]") {
    quic::Config config;
    config.accept_join = true;
    config.join_connections_max = 2;
    Network net(14);
    Host& a = net.add(1, {}, {}, accept_all);
    Host& b = net.add(2, config, identity(2), accept_all);
    b.attach_receivers = false;
    for (int i = 0; i < 3; ++i) REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_join));
    REQUIRE(net.run([&] {
        return a.count(Event::Kind::connected) + a.count(Event::Kind::closed) >= 3 &&
               a.last(Event::Kind::closed);
    }));
    CHECK(b.count(Event::Kind::connected) == 2);
    CHECK(has(a.last(Event::Kind::closed)->close.reason, "at most 2"));
    for (const Event& e : a.events)
        if (quic::Connection* c = a.endpoint->find(e.conn); c && e.kind == Event::Kind::connected)
            c->write(Class::bulk, std::vector<std::byte>(1 << 20));
    net.pass(2s);
    CHECK(net.datagrams * 1000 < (1 << 20));
    // Once one has gone, the next may come.
    a.connection()->close(20, "done");
    net.pass(1s);
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_join));
    REQUIRE(net.run([&] { return b.count(Event::Kind::connected) == 3; }));
}

TEST_CASE("a new identity counts for new handshakes and leaves old connections alone", "[quic]") {
    Pair p(15);
    REQUIRE(p.connect());
    quic::Connection* old = p.b.connection();
    REQUIRE(p.b.endpoint->set_identity(identity(3)));
    p.dial();
    REQUIRE(p.net.run([&] { return p.a.count(Event::Kind::connected) == 2; }));
    CHECK(p.a.connection()->peer() == leaf(3).id);
    CHECK(old->is_open());
    CHECK_FALSE(p.b.endpoint->set_identity({"nonsense", {}, ""}));
    CHECK_FALSE(p.b.endpoint->set_identity({leaf(1).certificate_pem, leaf(2).private_key_pem, ""}));
}

TEST_CASE("exported keying material is equal on both ends, and bound to label, context and connection",
          "[quic]") {
    Pair p(16);
    REQUIRE(p.connect());
    quic::Connection &a = *p.a.connection(), &b = *p.b.connection();
    const auto key = a.export_keying_material("nexar join", test::bytes_of("context"), 32);
    REQUIRE(key);
    CHECK(*key == *b.export_keying_material("nexar join", test::bytes_of("context"), 32));
    CHECK(*key != *a.export_keying_material("nexar other", test::bytes_of("context"), 32));
    CHECK(*key != *a.export_keying_material("nexar join", test::bytes_of("Context"), 32));
    CHECK_FALSE(a.export_keying_material("x", {}, 0));
    CHECK_FALSE(a.export_keying_material("x", {}, 1 << 20));
    p.dial();
    REQUIRE(p.net.run([&] { return p.a.count(Event::Kind::connected) == 2; }));
    CHECK(*key != *p.a.connection()->export_keying_material("nexar join", test::bytes_of("context"), 32));
}

TEST_CASE("a close carries its code and reason to the other side, and nothing is left", "[quic]") {
    Pair p(17);
    REQUIRE(p.connect());
    quic::Connection& c = *p.a.connection();
    c.close(42, "GOODBYE: maintenance");
    CHECK_FALSE(c.is_open());
    CHECK(c.room(Class::bulk) == 0);
    c.write(Class::control, test::bytes_of("too late"));  // does nothing
    CHECK_FALSE(c.export_keying_material("x", {}, 32));
    REQUIRE(p.net.run([&] { return p.b.last(Event::Kind::closed); }));
    const CloseInfo& there = p.b.last(Event::Kind::closed)->close;
    CHECK(there.cause == CloseInfo::Cause::closed_by_peer);
    CHECK(there.by_peer);
    CHECK(there.application);
    CHECK(there.code == 42);
    CHECK(there.reason == "GOODBYE: maintenance");
    const CloseInfo& here = p.a.last(Event::Kind::closed)->close;
    CHECK(here.cause == CloseInfo::Cause::closed_here);
    CHECK_FALSE(here.by_peer);
    p.net.pass(5s);
    CHECK(p.a.endpoint->stats().connections == 0);
    CHECK(p.b.endpoint->stats().connections == 0);
    CHECK(p.a.endpoint->wake_at() == never);
    CHECK(p.b.inbox().bytes[0].empty());
}

TEST_CASE("a lost close packet is repeated when the peer sends", "[quic]") {
    Pair p(18);
    REQUIRE(p.connect());
    p.net.pass(100ms);
    p.b.connection()->write(Class::bulk, std::vector<std::byte>(1 << 20));
    p.a.connection()->close(43, "bye");
    p.net.weather.lose_one_in = 1;  // the first close packet does not arrive
    p.net.run([&] { return p.a.last(Event::Kind::closed) != nullptr; });
    p.net.weather.lose_one_in = 0;
    REQUIRE(p.net.run([&] { return p.b.last(Event::Kind::closed); }, 2s));
    CHECK(p.b.last(Event::Kind::closed)->close.cause != CloseInfo::Cause::idle);
}

TEST_CASE("silence ends a connection after the idle timeout, and not before", "[quic]") {
    quic::Config config;
    config.idle_timeout = 3s;
    Pair p(19, config);
    REQUIRE(p.connect());
    p.net.pass(2500ms);
    REQUIRE(p.a.connection());
    p.a.connection()->write(Class::control, test::bytes_of("beat"));
    p.net.pass(2500ms);
    REQUIRE(p.a.connection());
    p.net.pass(1s);
    REQUIRE(p.a.last(Event::Kind::closed));
    CHECK(p.a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::idle);
    CHECK(p.b.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::idle);
}

TEST_CASE("a dial into the void ends with the handshake timeout", "[quic]") {
    Pair p(20);
    p.net.weather.lose_one_in = 1;
    p.dial();
    REQUIRE_FALSE(p.net.run([&] { return p.a.last(Event::Kind::closed); }, 4900ms));
    REQUIRE(p.net.run([&] { return p.a.last(Event::Kind::closed); }, 200ms));
    CHECK(p.a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::handshake_timeout);
    CHECK(p.net.datagrams < 40);
}

TEST_CASE("dials that cannot work are refused at once with a reason", "[quic]") {
    Pair p(21);
    CHECK_FALSE(p.a.endpoint->connect({}, p.a.address, *Address::parse("[::1]:1"), "nexar/1"));
    CHECK_FALSE(p.a.endpoint->connect({}, p.a.address, *Address::parse("10.0.0.9:0"), "nexar/1"));
    CHECK_FALSE(p.a.endpoint->connect({}, p.a.address, p.b.address, ""));
    CHECK_FALSE(Address::parse("localhost:1"));
    CHECK_FALSE(Address::parse("1.2.3.4"));
    CHECK_FALSE(Address::parse("1.2.3.4:99999"));
    CHECK_FALSE(Address::parse("[::1]"));
    CHECK(Address::parse("[::1]:5")->text() == "[::1]:5");
}

TEST_CASE("time that goes backwards is taken as standing still", "[quic]") {
    Pair p(22);
    REQUIRE(p.connect());
    p.net.pass(1s);
    p.a.endpoint->on_time(Time{});
    p.a.connection()->write(Class::rpc, test::bytes_of("x"));
    std::vector<std::byte> buffer(quic::Endpoint::send_buffer_bytes);
    CHECK(p.a.endpoint->poll_send(Time{}, buffer));
    CHECK(p.a.endpoint->wake_at() > Time{});
}

TEST_CASE("both sides dial at once: two connections, for the caller to choose from", "[quic]") {
    Pair p(23);
    p.dial();
    REQUIRE(p.b.endpoint->connect(p.net.now, p.b.address, p.a.address, quic::alpn_nexar));
    REQUIRE(p.net.run(
        [&] { return p.a.count(Event::Kind::connected) == 2 && p.b.count(Event::Kind::connected) == 2; }));
}

TEST_CASE("a restarted node with the same reset secret resets its peer at once", "[quic]") {
    Network net(24);
    std::array<std::byte, 32> secret{};
    Host& a = net.add(1, {}, identity(1), accept_all);
    Host& b = net.add(2, {}, identity(2), accept_all);
    auto source = std::make_shared<Random>(5);
    auto b_again = [&] {
        return std::move(*quic::Endpoint::make(
            {}, identity(2), accept_all,
            [source](MutableBytes out) {
                for (std::byte& x : out) x = static_cast<std::byte>(source->next());
            },
            secret));
    };
    b.endpoint = b_again();
    REQUIRE(a.endpoint->connect(net.now, a.address, b.address, quic::alpn_nexar));
    REQUIRE(net.run([&] { return a.connection() && b.connection(); }));
    net.pass(1s);
    b.endpoint = b_again();
    a.connection()->write(Class::rpc, std::vector<std::byte>(100));
    REQUIRE(net.run([&] { return a.last(Event::Kind::closed); }, 1s));
    CHECK(a.last(Event::Kind::closed)->close.cause == CloseInfo::Cause::reset);
}
