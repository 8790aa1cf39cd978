// Channels over the QUIC carrier, two endpoints in a simulated network: opening, greetings, adoption, dials
// that cross, stale and replaced connections.
#include "transport/quic_carrier.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "connections/channels.hpp"
#include "support/regions.hpp"
#include "unit/quic/network.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using connections::Channels;
using connections::Closed;
using connections::ConnectionId;
using connections::Opened;
using connections::Preamble;
using connections::Purpose;
using link::MeshEvent;
using transport::QuicCarrier;

namespace {

link::MeshConfig mesh_config(uint64_t incarnation) {
    link::MeshConfig c;
    c.incarnation = incarnation;
    return c;
}
Preamble ours(uint64_t counter) {
    Preamble p;
    p.purpose = Purpose::bulk;
    p.shard = 2;
    p.incarnation = {counter, counter + 100};
    return p;
}
std::vector<std::byte> text(std::string_view t) {
    const auto bytes = std::as_bytes(std::span(t));
    return {bytes.begin(), bytes.end()};
}

struct Side {
    test::Network& net;
    test::Host& host;
    link::Mesh mesh;
    QuicCarrier carrier;
    Channels port;
    link::PeerIndex peer;  // how this side numbers the other
    bool adopts = true;
    std::vector<Opened> opened;
    std::vector<Closed> closed;
    std::vector<std::vector<std::byte>> greetings, messages;
    std::vector<std::string> garbage;
    std::map<uint64_t, int> done;
    size_t adopted = 0, refused = 0;

    Side(test::Network& n, test::Host& h, size_t number, uint32_t peer_number)
        : net(n),
          host(h),
          mesh(mesh_config(number + 100)),
          carrier(*h.endpoint, h.address),
          port(carrier, mesh, test::leaf(number).id, ours(number)),
          peer(peer_number) {
        host.attach_receivers = false;
        host.on_event = [this](const quic::Event& e) { carrier.on_event(net.now, e, port); };
    }
    void turn() {
        port.on_time(net.now);
        while (auto o = port.poll_opened()) {
            opened.push_back(*o);
            if (adopts) adopt(o->id);
        }
        while (auto c = port.poll_closed()) closed.push_back(*c);
        while (auto g = port.poll_greeting()) greetings.push_back(g->second);
        port.check_invariants();
        mesh.flush();
        while (auto e = mesh.poll_event()) {
            if (e->kind == MeshEvent::Kind::message) messages.push_back(e->bytes);
            if (e->kind == MeshEvent::Kind::peer_garbage) garbage.push_back(e->text);
            if (e->kind == MeshEvent::Kind::done) ++done[e->handle];
        }
    }
    bool adopt(ConnectionId conn) {
        const bool ok = port.adopt(conn, peer);
        ++(ok ? adopted : refused);
        return ok;
    }
};

struct Two {
    test::Pair hosts;
    Side a, b;

    explicit Two(uint64_t seed) : hosts(seed), a(hosts.net, hosts.a, 1, 20), b(hosts.net, hosts.b, 2, 10) {}
    ConnectionId dial(Side& from, Side& to) {
        return *from.port.dial(hosts.net.now, to.host.address.text(), test::leaf(&to == &a ? 1 : 2).id);
    }
    template <class Done>
    bool run(Done done, Duration limit = 20s) {
        return hosts.net.run(
            [&] {
                a.turn();
                b.turn();
                return done();
            },
            limit);
    }
    void pass(Duration time) {
        run([] { return false; }, time);
    }
    // Messages pass both ways, so both sides agree on connection and generation.
    bool talk(std::string_view what) {
        if (!a.mesh.send_message(a.peer, text(what)) || !b.mesh.send_message(b.peer, text(what)))
            return false;
        return run([&] {
            return !a.messages.empty() && !b.messages.empty() && a.messages.back() == text(what) &&
                   b.messages.back() == text(what);
        });
    }
    bool clean() const { return a.garbage.empty() && b.garbage.empty(); }
};

struct Transfer {
    std::vector<uint32_t> from, to, expected;
    explicit Transfer(size_t words) : from(words), to(words), expected(words) {
        for (size_t i = 0; i < words; ++i) {
            from[i] = static_cast<uint32_t>(i * 2654435761u + 5);
            to[i] = static_cast<uint32_t>(i);
            expected[i] = from[i] + to[i];
        }
    }
    void post(Side& sender, Side& receiver, uint64_t op) {
        link::TransferKey key;
        key.op = {GroupId{1, 2, 3}, {}, op};
        link::Batch recv, send;
        recv.first_handle = send.first_handle = op;
        recv.recvs.resize(1);
        recv.recvs[0].key = key;
        recv.recvs[0].from = receiver.peer;
        recv.recvs[0].memory = {{nexar::test::place_of(to.data()), to.size() * 4}};
        recv.recvs[0].reduce = link::RecvSpec::Reduce{Dtype::u32, ReduceOp::sum};
        send.sends.resize(1);
        send.sends[0].key = key;
        send.sends[0].to = sender.peer;
        send.sends[0].memory = {{nexar::test::place_of(from.data()), from.size() * 4}};
        receiver.mesh.post(std::move(recv));
        sender.mesh.post(std::move(send));
    }
};

}  // namespace

TEST_CASE("a dialled connection opens on both sides with each other's preamble", "[transport]") {
    Two two(1);
    two.a.adopts = two.b.adopts = false;
    const ConnectionId conn = two.dial(two.a, two.b);
    REQUIRE(two.run([&] { return two.a.opened.size() == 1 && two.b.opened.size() == 1; }));
    CHECK(two.a.opened[0].id == conn);
    CHECK(two.a.opened[0].we_dialled);
    CHECK(two.a.opened[0].node == test::leaf(2).id);
    CHECK(two.a.opened[0].theirs.incarnation == Incarnation{2, 102});
    CHECK_FALSE(two.b.opened[0].we_dialled);
    CHECK(two.b.opened[0].node == test::leaf(1).id);
    CHECK(two.b.opened[0].theirs.incarnation == Incarnation{1, 101});
    CHECK(two.b.opened[0].theirs.shard == 2);
    CHECK(two.b.opened[0].theirs.generation == two.a.opened[0].theirs.generation);  // proposed, accepted

    SECTION("greetings pass before it is adopted, messages after") {
        two.a.port.greet(two.a.opened[0].id, text("hello from a"));
        two.b.port.greet(two.b.opened[0].id, text("hello from b"));
        two.b.port.greet(two.b.opened[0].id, text("and who are you?"));
        REQUIRE(two.run([&] { return two.a.greetings.size() == 2 && two.b.greetings.size() == 1; }));
        CHECK(two.b.greetings[0] == text("hello from a"));
        CHECK(two.a.greetings[1] == text("and who are you?"));
        REQUIRE(two.a.adopt(two.a.opened[0].id));
        // a has switched, b has not: what a sends meanwhile waits at b.
        REQUIRE(two.a.mesh.send_message(two.a.peer, text("early")));
        two.pass(1s);
        CHECK(two.b.messages.empty());
        REQUIRE(two.b.adopt(two.b.opened[0].id));
        REQUIRE(two.run([&] { return two.b.messages.size() == 1; }));
        CHECK(two.b.messages[0] == text("early"));
        CHECK(two.talk("both"));
        CHECK(two.a.port.peer_of(conn) == two.a.peer);
        CHECK(two.a.port.conn_of(two.a.peer) == conn);
        CHECK(two.a.port.remote_of(conn) == two.b.host.address.text());
        CHECK(two.clean());
    }
    SECTION("one that is refused closes on both sides, with the reason") {
        two.b.port.refuse(two.b.opened[0].id, Channels::close_refused, "not a member");
        REQUIRE(two.run([&] { return two.a.closed.size() == 1 && two.b.closed.size() == 1; }));
        CHECK(two.a.closed[0].why.reason == "not a member");
        CHECK(two.a.closed[0].why.code == Channels::close_refused);
        CHECK_FALSE(two.a.closed[0].peer);
        CHECK_FALSE(two.a.port.adopt(conn, two.a.peer));  // it has ended meanwhile
        two.a.port.greet(conn, text("nobody"));           // and this does nothing
    }
}

TEST_CASE("a peer that does not begin with a preamble is closed for garbage", "[transport]") {
    test::Pair hosts(5);
    Side b(hosts.net, hosts.b, 2, 10);
    hosts.a.attach_receivers = true;
    hosts.dial();
    REQUIRE(hosts.net.run([&] {
        b.turn();
        return hosts.a.connection() != nullptr;
    }));
    hosts.a.connection()->write(Class::control, text("GET / HTTP/1.1 and so on, 32 bytes and more"));
    REQUIRE(hosts.net.run([&] {
        b.turn();
        return hosts.a.last(quic::Event::Kind::closed) != nullptr;
    }));
    CHECK(hosts.a.last(quic::Event::Kind::closed)->close.code == Channels::close_garbage);
    CHECK(b.opened.empty());
}

TEST_CASE("dials that cross end with one connection, the same on both sides", "[transport]") {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        INFO("seed " << seed);
        Two two(seed);
        two.hosts.net.weather.jitter = 2ms;
        if (seed % 3 == 0) two.hosts.net.weather.lose_one_in = 10;
        two.dial(two.a, two.b);
        if (seed % 2 == 0) two.pass(Duration(static_cast<int64_t>(two.hosts.net.random().below(3'000'000))));
        two.dial(two.b, two.a);
        two.pass(3s);
        const auto at_a = two.a.port.conn_of(two.a.peer), at_b = two.b.port.conn_of(two.b.peer);
        REQUIRE(at_a);
        REQUIRE(at_b);
        CHECK(two.a.host.endpoint->stats().connections == 1);
        CHECK(two.b.host.endpoint->stats().connections == 1);
        CHECK(two.a.carrier.find(*at_a)->we_dialled() != two.b.carrier.find(*at_b)->we_dialled());
        CHECK(two.talk("still here"));  // with generations that differ this would be garbage
        CHECK(two.clean());
    }
}

TEST_CASE("a connection whose generation is not above the last one's is refused", "[transport]") {
    Two two(7);
    two.b.adopts = two.a.adopts = false;
    two.dial(two.a, two.b);
    two.dial(two.a, two.b);
    REQUIRE(two.run([&] { return two.a.opened.size() == 2 && two.b.opened.size() == 2; }));
    const size_t higher = two.b.opened[0].generation > two.b.opened[1].generation ? 0 : 1;
    CHECK(two.b.opened[higher].generation > two.b.opened[1 - higher].generation);
    CHECK(two.b.adopt(two.b.opened[higher].id));
    CHECK_FALSE(two.b.adopt(two.b.opened[1 - higher].id));
    REQUIRE(two.run([&] { return two.a.closed.size() == 1 && two.b.closed.size() == 1; }));
    CHECK(two.a.closed[0].why.code == Channels::close_replaced);
    CHECK(two.b.port.conn_of(two.b.peer) == two.b.opened[higher].id);
}

TEST_CASE("a connection that replaces another goes on with its transfers, each chunk once", "[transport]") {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
        INFO("seed " << seed);
        Two two(seed);
        two.dial(two.a, two.b);
        REQUIRE(two.run([&] { return two.a.adopted == 1 && two.b.adopted == 1; }));
        Transfer t(3u << 20 >> 2);
        t.post(two.a, two.b, 77);
        for (size_t cut = 1; cut <= 3; ++cut) {
            two.pass(Duration(static_cast<int64_t>(100'000 + two.hosts.net.random().below(1'000'000))));
            two.dial(seed % 2 ? two.a : two.b, seed % 2 ? two.b : two.a);
            REQUIRE(two.run([&] { return two.a.adopted == cut + 1 && two.b.adopted == cut + 1; }));
        }
        REQUIRE(two.run([&] { return two.a.done[77] > 0 && two.b.done[77] > 0; }));
        CHECK((two.a.done[77] == 1 && two.b.done[77] == 1));
        CHECK(t.to == t.expected);
        two.pass(2s);  // replaced ones drain first (RFC 9000 10.2)
        CHECK(two.a.host.endpoint->stats().connections == 1);
        CHECK(two.clean());
    }
}

TEST_CASE("a closed channel is reported with its peer, and a new dial takes up from there", "[transport]") {
    Two two(9);
    two.dial(two.a, two.b);
    REQUIRE(two.run([&] { return two.a.adopted == 1 && two.b.adopted == 1; }));
    Transfer t(1000);
    two.a.port.close(two.a.peer, Channels::close_goodbye, "going down");
    REQUIRE(two.run([&] { return two.a.closed.size() == 1 && two.b.closed.size() == 1; }));
    CHECK(two.b.closed[0].peer == two.b.peer);
    CHECK(two.b.closed[0].why.code == Channels::close_goodbye);
    CHECK(two.b.closed[0].why.by_peer);
    CHECK(two.b.closed[0].why.reason == "going down");
    CHECK_FALSE(two.b.port.conn_of(two.b.peer));
    CHECK_FALSE(two.b.mesh.send_message(two.b.peer, text("nobody")));
    t.post(two.b, two.a, 5);  // waits for a channel
    two.dial(two.b, two.a);
    REQUIRE(two.run([&] { return two.a.done[5] == 1 && two.b.done[5] == 1; }));
    CHECK(t.to == t.expected);
    CHECK(two.clean());
}

namespace {

// A member that speaks QUIC and no more: side b has channels, and a dials it without one.
struct Mute {
    test::Pair hosts{11};
    Side b{hosts.net, hosts.b, 2, 10};
    Mute() { hosts.a.attach_receivers = false; }
    // In steps: the network does not know when the port wants its turn.
    bool run(const std::function<bool()>& done, Duration limit = 20s) {
        for (const Time end = hosts.net.now + limit; hosts.net.now < end;)
            if (hosts.net.run(
                    [&] {
                        b.turn();
                        return done();
                    },
                    10ms))
                return true;
        return false;
    }
    std::vector<quic::Connection*> open() {
        std::vector<quic::Connection*> out;
        for (const quic::Event& e : hosts.a.events)
            if (e.kind == quic::Event::Kind::connected)
                if (quic::Connection* c = hosts.a.endpoint->find(e.conn); c && c->is_open()) out.push_back(c);
        return out;
    }
};

}  // namespace

TEST_CASE("a connection without a preamble is closed after its time, and one that is never adopted too",
          "[transport][H10]") {
    const bool with_preamble = GENERATE(false, true);
    Mute mute;
    mute.b.adopts = false;
    mute.hosts.dial();
    REQUIRE(mute.run([&] { return mute.open().size() == 1; }));
    if (with_preamble) mute.open()[0]->write(Class::control, Bytes(to_bytes(ours(1))));
    const Time since = mute.hosts.net.now;
    REQUIRE(mute.run([&] { return mute.b.closed.size() == 1; }, 25s));
    CHECK(mute.hosts.net.now - since >= 4900ms);
    CHECK(mute.hosts.net.now - since < 6s);
    CHECK(mute.b.opened.size() == (with_preamble ? 1u : 0u));
    CHECK(mute.b.closed[0].why.code == (with_preamble ? Channels::close_refused : Channels::close_garbage));
    mute.run([] { return false; }, 2s);
    CHECK(mute.hosts.b.endpoint->stats().connections == 0);
}

TEST_CASE("one node has few connections that are not adopted, each with its windows and no more",
          "[transport][H10]") {
    Mute mute;
    for (int i = 0; i < 20; ++i) mute.hosts.dial();
    const auto decided = [&] {
        return mute.hosts.a.count(quic::Event::Kind::connected) +
               mute.hosts.a.count(quic::Event::Kind::closed);
    };
    REQUIRE(mute.run([&] { return decided() >= 20; }, 2s));
    mute.run([] { return false; }, 100ms);
    CHECK(mute.open().size() == 4);

    quic::Connection& one = *mute.open()[0];
    const std::vector<std::byte> piece(64 << 10);
    size_t written = 0;
    mute.run(
        [&] {
            while (one.is_open() && one.room(Class::bulk) >= piece.size()) {
                one.write(Class::bulk, piece);
                written += piece.size();
            }
            return false;
        },
        1s);
    const quic::Config config;
    CHECK(one.is_open());
    CHECK(written >= 1u << 20);
    CHECK(written <= config.receive_window[3] + config.send_buffer_max[3]);

    // Who goes on properly gets all of it: the link takes over what waited, and credit flows.
    one.write(Class::control, Bytes(to_bytes(ours(1))));
    REQUIRE(mute.run([&] { return mute.b.adopted == 1; }, 1s));
}
