// Two control loops' own bulk endpoints, over real sockets on loopback; one loop drives both.
#include "node/loop_bulk.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/time.hpp"
#include "support/test_certs.hpp"
#include "support/transfers.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using loop::Loop;
using node::LoopBulk;
using test::key;
using test::Transfers;

namespace {

constexpr link::PeerIndex peer_a(5), peer_b(9);  // a's number at b, b's number at a
constexpr size_t words_of_64_kib = 16 * 1024, words_of_256_kib = 64 * 1024;

const test::CertificateAuthority& authority() {
    static const test::CertificateAuthority made("root");
    return made;
}

struct End {
    test::Leaf leaf = authority().issue("node");
    Incarnation incarnation;
    std::string address;
    LoopBulk bulk;
    std::map<uint64_t, int> done;
    size_t failed = 0, ups = 0;
    std::optional<connections::CarrierKind> carrier;  // of the last connection

    explicit End(uint64_t nonce) : incarnation{1, nonce} {}
    quic::Identity identity() const {
        return {leaf.certificate_pem, leaf.private_key_pem, authority().certificate_pem()};
    }
    void open(Loop& loop, bool tcp) {
        static uint16_t port = static_cast<uint16_t>(20'000 + ::getpid() % 20'000);
        shards::BulkEndpointConfig c;
        c.number = shards::loop_number;
        address = "127.0.0.1:" + std::to_string(port++);
        c.listen = *quic::Address::parse(address);
        c.identity = identity();
        c.verifier = [](const quic::PeerChain& chain, std::string_view) {
            return test::node_id_of(chain.front());
        };
        c.self = leaf.id;
        c.incarnation = incarnation;
        c.tcp = tcp;
        c.mesh.incarnation = incarnation.nonce;
        c.mesh.eager_bytes_max = 256 * 1024;
        c.mesh.eager_room_per_group = 1024 * 1024;
        c.handshake_share = 1ms;
        c.turn_bytes = 512 * 1024;
        c.acks_wait = true;
        const auto opened = bulk.open(std::move(c), loop);
        if (!opened) FAIL(opened.error().text);
    }
    void introduce(link::PeerIndex number, const End& other, bool dial, bool tcp) {
        transport::TcpCarrier::Peer peer{other.leaf.id, other.incarnation, {}, false};
        peer.key.fill(std::byte{7});
        if (tcp) bulk.apply(shards::UseAttachKey{peer});
        bulk.apply(
            connections::KnownPeer{number, other.leaf.id, other.incarnation, other.address, dial, {}, tcp});
    }
    bool collect() {
        bool any = false;
        for (; auto event = bulk.poll_event(); any = true) {
            if (const auto* state = std::get_if<connections::BulkState>(&*event)) {
                ups += state->up;
                if (state->up) carrier = state->carrier;
            } else if (const auto* e = std::get_if<link::MeshEvent>(&*event)) {
                if (e->kind == link::MeshEvent::Kind::done) ++done[e->handle];
                failed += e->kind == link::MeshEvent::Kind::failed;
            }
        }
        return any;
    }
    uint64_t received() const { return sum(bulk.traffic().received); }
    uint64_t sent() const { return sum(bulk.traffic().sent); }
    static uint64_t sum(const std::array<link::Amount, class_count>& amounts) {
        uint64_t out = 0;
        for (const link::Amount& amount : amounts) out += amount.payload;
        return out;
    }
};

struct Two {
    Loop loop;
    End a{7}, b{8};
    bool tcp;
    uint64_t turns = 0;
    std::optional<Time> time_of_b;  // it stands still; none: both have the clock's
    std::function<void()> engine;   // what the next turn asks, between what it receives and sends

    explicit Two(bool over_tcp) : tcp(over_tcp) {
        a.open(loop, tcp);
        b.open(loop, tcp);
        introduce();
    }
    // b dials.
    void introduce() {
        a.introduce(peer_b, b, false, tcp);
        b.introduce(peer_a, a, true, tcp);
    }
    // Turns as the daemon does: receive, work, send; it sleeps when there was no work, until `done`.
    bool run(const std::function<bool()>& done, Duration limit = 20s) {
        const Time end = Loop::now() + limit;
        bool in_time = true;
        loop.set_turn([&]() -> Time {
            ++turns;
            const Time now = Loop::now();
            const auto time_of = [&](const End* each) { return each == &b && time_of_b ? *time_of_b : now; };
            bool work = false;
            for (End* each : {&a, &b}) {
                work |= each->bulk.receive(time_of(each));
                work |= each->collect();
            }
            if (engine) std::exchange(engine, {})();
            for (End* each : {&a, &b}) work |= each->bulk.send(time_of(each));
            in_time = now < end;
            if (done() || !in_time) loop.stop();
            if (work) return Time{};
            return std::min({a.bulk.wake_at(), b.bulk.wake_at(), end});
        });
        loop.run();
        return in_time;
    }
    bool connect() {
        const auto kind = tcp ? connections::CarrierKind::tcp : connections::CarrierKind::quic;
        return run([&, kind] { return a.carrier == kind && b.carrier == kind; });
    }
    bool sleeps() const { return std::min(a.bulk.wake_at(), b.bulk.wake_at()) > Loop::now() + 1ms; }
};

Transfers small(uint64_t op, size_t count, size_t words, bool reduce) {
    Transfers out(op, count, words, reduce);
    out.cls = Class::small;
    return out;
}

// Both ways at once; true: each has ended once, with every word right.
bool exchange(Two& two, uint64_t op, size_t words) {
    Transfers to_a = small(op, 3, words, true), to_b = small(op + 1, 3, words, false);
    two.a.done.clear();
    two.b.done.clear();
    two.a.bulk.post(to_a.recvs(peer_b, 100));
    two.b.bulk.post(to_b.recvs(peer_a, 300));
    two.a.bulk.post(to_b.sends(peer_b, 400));
    two.b.bulk.post(to_a.sends(peer_a, 200));
    if (!two.run([&] { return two.a.done.size() == 6 && two.b.done.size() == 6; })) return false;
    for (const End* end : {&two.a, &two.b})
        for (const auto& [handle, times] : end->done)
            if (times != 1) return false;
    return to_a.wrong() + to_b.wrong() + two.a.failed + two.b.failed == 0;
}

}  // namespace

TEST_CASE("transfers of the loop's sizes arrive whole, over either carrier", "[node][B11]") {
    for (const bool tcp : {true, false}) {
        CAPTURE(tcp);
        Two two(tcp);
        REQUIRE(two.connect());
        for (uint64_t i = 0; i < 8; ++i)
            CHECK(exchange(two, 1 + 2 * i, i % 2 == 0 ? words_of_64_kib : words_of_256_kib));
    }
}

TEST_CASE("an idle endpoint lets the loop sleep, and what comes wakes it", "[node][B11]") {
    for (const bool tcp : {true, false}) {
        CAPTURE(tcp);
        Two two(tcp);
        REQUIRE(two.connect());
        REQUIRE(exchange(two, 1, words_of_64_kib));
        REQUIRE(two.run([&] { return two.sleeps(); }));
        // Nobody waits for it at a, which its sockets alone wake.
        Transfers early = small(9, 1, words_of_64_kib, false);
        const uint64_t before = two.a.received(), sent = two.b.sent(), turns = two.turns;
        two.engine = [&] { two.b.bulk.post(early.sends(peer_a, 700)); };
        REQUIRE(two.run([] { return true; }));
        CHECK(two.b.sent() > sent);  // in the turn that asked
        REQUIRE(two.run([&] { return two.a.received() > before; }));
        CHECK(two.turns - turns < 1000);
        two.a.bulk.post(early.recvs(peer_b, 600));
        REQUIRE(two.run([&] { return two.a.done.contains(600) && two.b.done.contains(700); }));
        CHECK(early.wrong() == 0);
        REQUIRE(two.run([&] { return two.sleeps(); }));
    }
}

TEST_CASE("an ack that may wait leaves a millisecond later, though nothing else is to be done",
          "[node][T6]") {
    Two two(false);
    REQUIRE(two.connect());
    Transfers to_b = small(1, 1, words_of_64_kib, false);
    link::Batch waits = to_b.recvs(peer_a, 300);
    for (link::RecvSpec& spec : waits.recvs) spec.ack_may_wait = true;
    two.time_of_b = Loop::now() + 1s;
    two.b.bulk.post(std::move(waits));
    two.a.bulk.post(to_b.sends(peer_b, 400));
    REQUIRE(two.run([&] { return two.b.done.contains(300); }));
    CHECK(to_b.wrong() == 0);
    const auto a_knows = [&] { return two.a.done.contains(400); };
    CHECK_FALSE(two.run(a_knows, 20ms));
    const uint64_t frames = two.b.bulk.traffic().sent[0].frames;  // of the control stream
    CHECK(two.b.bulk.wake_at() <= *two.time_of_b + 1ms);
    *two.time_of_b += 1ms;
    REQUIRE(two.run(a_knows));
    CHECK(two.b.bulk.traffic().sent[0].frames == frames + 1);
    CHECK(two.b.bulk.wake_at() > *two.time_of_b);
}

TEST_CASE("an endpoint that is closed accepts nothing, and opens again", "[node][B11]") {
    Two two(true);
    REQUIRE(two.connect());
    two.b.bulk.close(Loop::now());
    CHECK(two.b.bulk.wake_at() == never);
    Transfers lost = small(1, 1, words_of_64_kib, false);
    two.b.bulk.post(lost.sends(peer_a, 1));
    CHECK_FALSE(two.b.bulk.receive(Loop::now()));
    CHECK_FALSE(two.b.bulk.send(Loop::now()));
    CHECK_FALSE(two.b.bulk.poll_event());
    two.a.bulk.apply(shards::DropPeer{peer_b, two.b.leaf.id, two.b.incarnation});
    two.b.incarnation = {2, 11};
    two.a.carrier.reset();
    two.b.carrier.reset();
    two.b.open(two.loop, true);
    two.introduce();
    REQUIRE(two.connect());
    CHECK(exchange(two, 3, words_of_64_kib));
}

TEST_CASE("a renewed certificate replaces the idle endpoint's connections", "[node][B11]") {
    for (const bool by_dialler : {true, false}) {
        CAPTURE(by_dialler);
        Two two(true);
        REQUIRE(two.connect());
        REQUIRE(two.run([&] { return two.sleeps(); }));
        const size_t before = two.a.ups;
        End& renewed = by_dialler ? two.b : two.a;
        renewed.bulk.apply(shards::UseIdentity{std::make_shared<const quic::Identity>(renewed.identity())});
        REQUIRE(two.run([&] { return two.a.ups > before; }));
        CHECK(exchange(two, 1, words_of_256_kib));
    }
}

TEST_CASE("a withdrawn transfer does not keep the loop awake", "[node][B11]") {
    Two two(true);
    REQUIRE(two.connect());
    Transfers unanswered = small(1, 1, words_of_64_kib, false);
    two.a.bulk.post(unanswered.recvs(peer_b, 100));
    REQUIRE(two.run([&] { return two.turns > 10; }));
    two.a.bulk.withdraw(key(1, 0).op);
    CHECK(two.run([&] { return two.sleeps(); }));
    CHECK(std::exchange(two.a.failed, 0) == 1);
    CHECK(exchange(two, 5, words_of_64_kib));
}
