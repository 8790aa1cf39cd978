// Two shards over TCP whose endpoints one control loop borrows and gives back: every byte arrives once, and
// every end is reported once, whichever thread drives.
#include <arpa/inet.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <optional>
#include <utility>

#include "loop/fd.hpp"
#include "pair.hpp"

using namespace nexar;
using namespace nexar::shards::test;
using shards::Shard;

namespace {

constexpr size_t words_of_mib = 256 * 1024;

struct End {
    nexar::test::Leaf leaf = ca().issue("node");
    Incarnation incarnation;
    loop::Wakeup wakeup;
    std::unique_ptr<Loop::Watch> wakeup_watch;
    std::unique_ptr<Shard> shard;
    std::map<uint64_t, int> ends;  // by handle
    size_t failed = 0;
    std::optional<connections::CarrierKind> carrier;

    End(Loop& loop, uint64_t nonce) : incarnation{1, nonce} {
        wakeup_watch = loop.watch(wakeup.fd(), true, false, [this](Loop::Ready) { wakeup.drain(); });
        shards::ShardConfig c;
        c.listen = *quic::Address::parse("127.0.0.1:0");
        c.identity = {leaf.certificate_pem, leaf.private_key_pem, ca().certificate_pem()};
        c.verifier = judge;
        c.self = leaf.id;
        c.incarnation = incarnation;
        c.tcp = true;
        c.mesh.incarnation = nonce;
        c.lends_to = &loop;
        std::string why;
        for (int i = 0; i < 50 && !shard; ++i) {  // TCP may be in use at the port that UDP got
            auto made = Shard::start(c, wakeup);
            if (made)
                shard = std::move(*made);
            else
                why = made.error().text;
        }
        if (!shard) FAIL(why);
    }
    void introduce(link::PeerIndex number, const End& other, bool dial) {
        transport::TcpCarrier::Peer peer{other.leaf.id, other.incarnation, {}, false};
        peer.key.fill(std::byte{7});
        shard->post(shards::UseAttachKey{peer});
        shard->post(connections::KnownPeer{
            number, other.leaf.id, other.incarnation, other.shard->local_address().text(), dial, {}, true});
    }
    bool collect() {
        bool any = false;
        for (; auto event = shard->poll_event(); any = true) {
            if (const auto* state = std::get_if<connections::BulkState>(&*event)) {
                if (state->up) carrier = state->carrier;
            } else if (const auto* e = std::get_if<link::MeshEvent>(&*event)) {
                using Kind = link::MeshEvent::Kind;
                if (e->kind == Kind::done || e->kind == Kind::failed) ++ends[e->handle];
                failed += e->kind == Kind::failed;
            }
        }
        return any;
    }
    bool each_once() const {
        return std::ranges::all_of(ends, [](const auto& end) { return end.second == 1; });
    }
};

struct Two {
    Loop loop;
    End a{loop, 7}, b{loop, 8};
    size_t turns = 0;
    bool has_visitors = false;     // at the beginning of a turn
    std::function<void()> engine;  // each turn, between what it receives and sends

    Two() {
        a.introduce(peer_b, b, false);
        b.introduce(peer_a, a, true);
        REQUIRE(run([&] {
            const auto tcp = connections::CarrierKind::tcp;
            return a.carrier == tcp && b.carrier == tcp;
        }));
    }
    bool run(const std::function<bool()>& done, Duration limit = 30s) {
        const Time end = Loop::now() + limit;
        bool in_time = true;
        loop.set_turn([&]() -> Time {
            ++turns;
            for (End* each : {&a, &b}) each->wakeup.awake();
            const Time now = Loop::now();
            bool work = false;
            for (End* each : {&a, &b}) {
                has_visitors |= each->shard->is_borrowed() && each->shard->has_visitors();
                work |= each->shard->receive(now);
                work |= each->collect();
            }
            if (engine) engine();
            for (End* each : {&a, &b}) {
                each->shard->flush();
                work |= each->shard->send(now);
            }
            in_time = now < end;
            if (done() || !in_time) loop.stop();
            for (End* each : {&a, &b}) each->wakeup.announce_sleep();
            for (End* each : {&a, &b}) work |= each->collect();
            if (work) return Time{};
            const Time looks_again = engine ? now + 20us : end;
            return std::min({a.shard->wake_at(), b.shard->wake_at(), looks_again});
        });
        loop.run();
        return in_time;
    }
    // Its thread sleeps at some time, since nothing is to be done; the loop has to look.
    bool borrow(End& end) {
        engine = [] {};
        const bool has = run([&] { return end.shard->borrow(); });
        engine = {};
        return has;
    }
};

// Both ways at once.
struct Exchange {
    Transfers to_a, to_b;
    uint64_t first;

    Exchange(uint64_t op, size_t count, size_t words)
        : to_a(op, count, words, true), to_b(op + 1, count, words, false), first(1000 * op) {}
    void post(Two& two) {
        const size_t n = to_a.to.size();
        two.a.shard->post(to_a.recvs(peer_b, first));
        two.a.shard->post(to_b.sends(peer_b, first + n));
        two.b.shard->post(to_b.recvs(peer_a, first));
        two.b.shard->post(to_a.sends(peer_a, first + n));
    }
    bool over(const Two& two) const {
        size_t n = 0;
        for (const End* end : {&two.a, &two.b})
            for (auto at = end->ends.lower_bound(first); at != end->ends.lower_bound(first + 1000); ++at) ++n;
        return n == 4 * to_a.to.size();
    }
    size_t wrong() const { return to_a.wrong() + to_b.wrong(); }
};

void check_ends(const Two& two) {
    CHECK(two.a.each_once());
    CHECK(two.b.each_once());
    CHECK(two.a.failed + two.b.failed == 0);
}

}  // namespace

TEST_CASE("a borrowed endpoint moves its bytes without the thread", "[shards][T8]") {
    Two two;
    SECTION("both ends") {
        REQUIRE(two.borrow(two.a));
        REQUIRE(two.borrow(two.b));
    }
    SECTION("one end") {
        REQUIRE(two.borrow(two.a));
    }
    for (uint64_t op = 1; op < 20; op += 2) {
        Exchange exchange(op, 3, words_of_mib / 4);
        exchange.post(two);
        REQUIRE(two.run([&] { return exchange.over(two); }));
        CHECK(exchange.wrong() == 0);
    }
    CHECK(two.a.shard->is_borrowed());
    check_ends(two);
}

TEST_CASE("endpoints that change hands at any moment lose nothing and repeat nothing", "[shards][T8]") {
    Two two;
    Random random(3);
    size_t lent = 0, given_back = 0, declined = 0, in_flight = 0;
    two.engine = [&] {
        if (random.below(3) > 0) return;
        Shard& shard = random.below(2) > 0 ? *two.a.shard : *two.b.shard;
        if (shard.is_borrowed()) {
            in_flight += shard.has_transfers();
            shard.give_back();
            ++given_back;
        } else if (shard.is_offered() && random.below(2) > 0) {
            shard.decline();
            ++declined;
        } else {
            lent += shard.borrow();
        }
    };
    for (uint64_t op = 1; op < 120 || (in_flight <= 20 && op < 4000); op += 2) {
        Exchange exchange(op, 1 + random.below(3), 1 + random.below(words_of_mib / 2));
        exchange.post(two);
        REQUIRE(two.run([&] { return exchange.over(two); }));
        REQUIRE(exchange.wrong() == 0);
        const size_t before = lent;
        REQUIRE(two.run([&] { return lent > before || random.below(8) == 0; }));
    }
    check_ends(two);
    CAPTURE(lent, given_back, declined);
    CHECK(in_flight > 20);
}

TEST_CASE("events that were not polled keep the loop from borrowing", "[shards][T8]") {
    Two two;
    Exchange exchange(1, 1, 1000);
    exchange.post(two);
    const auto received = [&](const End& end) {
        return end.shard->traffic().received[index_of(Class::bulk)].payload;
    };
    const Time end = Loop::now() + 20s;  // the loop polls nothing
    while ((received(two.a) < 4000 || received(two.b) < 4000) && Loop::now() < end) sched_yield();
    bool lent = false;
    for (const Time until = Loop::now() + 20ms; Loop::now() < until;) lent |= two.a.shard->borrow();
    CHECK_FALSE(lent);
    REQUIRE(two.run([&] { return exchange.over(two) && two.a.shard->borrow(); }));
    check_ends(two);
}

TEST_CASE("a turn of the loop takes a part of what has come over a borrowed endpoint", "[shards][T8]") {
    Two two;
    REQUIRE(two.borrow(two.a));
    Transfers to_a(1, 1, 16 * words_of_mib, false);
    two.b.shard->post(to_a.sends(peer_a, 200));
    two.a.shard->post(to_a.recvs(peer_b, 100));
    uint64_t before = 0, most = 0;
    two.engine = [&] {
        const uint64_t now = two.a.shard->traffic().received[index_of(Class::bulk)].payload;
        most = std::max(most, now - std::exchange(before, now));
    };
    REQUIRE(two.run([&] { return two.a.ends.contains(100) && two.b.ends.contains(200); }));
    CHECK(two.a.shard->is_borrowed());
    CHECK(to_a.wrong() == 0);
    // And the chunk that was begun.
    CHECK(most <= 512 * 1024 + 256 * 1024);
}

TEST_CASE("who knocks at a borrowed endpoint is seen", "[shards][T8]") {
    Two two;
    REQUIRE(two.borrow(two.a));
    REQUIRE_FALSE(two.has_visitors);
    const quic::Address to = two.a.shard->local_address();
    const bool over_tcp = GENERATE(false, true);
    const loop::Fd knocks(::socket(AF_INET, over_tcp ? SOCK_STREAM : SOCK_DGRAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(to.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(knocks.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    if (!over_tcp) REQUIRE(::send(knocks.get(), "x", 1, 0) == 1);
    CHECK(two.run([&] { return two.has_visitors; }));
}

TEST_CASE("while a thread has transfers, its endpoint is not lent", "[shards][T8]") {
    Two two;
    Exchange exchange(1, 1, words_of_mib);
    two.a.shard->post(exchange.to_a.recvs(peer_b, 1000));  // and b does not send
    const Time end = Loop::now() + 200ms;
    bool lent = false;
    two.engine = [&] { lent |= two.a.shard->borrow(); };
    REQUIRE(two.run([&] { return Loop::now() > end; }));
    CHECK_FALSE(lent);
    two.engine = {};
    two.a.shard->post(shards::Withdraw{key(1, 0).op});
    REQUIRE(two.run([&] { return two.a.failed == 1; }));
    CHECK(two.borrow(two.a));
}

TEST_CASE("a thread that was found at work offers its endpoint after its last transfer", "[shards][T8]") {
    Two two;
    Exchange exchange(1, 1, words_of_mib), next(3, 1, words_of_mib);
    two.a.shard->post(exchange.to_a.recvs(peer_b, 1000));
    two.a.shard->post(exchange.to_b.sends(peer_b, 1001));
    REQUIRE_FALSE(two.a.shard->borrow());
    two.b.shard->post(exchange.to_b.recvs(peer_a, 1000));
    two.b.shard->post(exchange.to_a.sends(peer_a, 1001));
    REQUIRE(two.run([&] { return exchange.over(two) && two.a.shard->is_offered(); }));
    CHECK(exchange.wrong() == 0);
    SECTION("the loop accepts it") {
        CHECK(two.a.shard->borrow());
        CHECK_FALSE(two.a.shard->is_offered());
    }
    SECTION("the loop declines it") {
        two.a.shard->decline();
        CHECK_FALSE(two.a.shard->is_offered());
        CHECK_FALSE(two.a.shard->is_borrowed());
    }
    SECTION("what is posted goes to the thread") {}
    SECTION("the shard ends") {
        two.a.shard.reset();
        return;
    }
    next.post(two);
    CHECK_FALSE(two.a.shard->is_offered());
    REQUIRE(two.run([&] { return next.over(two); }));
    CHECK(next.wrong() == 0);
    check_ends(two);
}

TEST_CASE("what has to do with connections gives a borrowed endpoint back", "[shards][T8]") {
    Two two;
    REQUIRE(two.borrow(two.a));
    Exchange exchange(1, 2, words_of_mib);
    exchange.post(two);
    CHECK(two.a.shard->is_borrowed());
    two.a.shard->post(shards::AskPeers{});
    CHECK_FALSE(two.a.shard->is_borrowed());
    REQUIRE(two.run([&] { return exchange.over(two); }));
    CHECK(exchange.wrong() == 0);
    check_ends(two);
}

TEST_CASE("a withdrawal and a dropped peer end what is in flight over a borrowed endpoint", "[shards][T8]") {
    Two two;
    REQUIRE(two.borrow(two.a));
    Exchange first(1, 2, words_of_mib), second(3, 2, words_of_mib);
    first.post(two);
    two.a.shard->post(shards::Withdraw{first.to_a.recvs(peer_b, 0).recvs[0].key.op});
    two.a.shard->post(shards::Withdraw{first.to_b.sends(peer_b, 0).sends[0].key.op});
    CHECK(two.a.shard->is_borrowed());
    REQUIRE(two.run([&] { return two.a.ends.size() == 4; }));
    const auto to = first.to_a.to;
    second.post(two);
    two.a.shard->post(shards::DropPeer{peer_b, two.b.leaf.id, two.b.incarnation});
    REQUIRE(two.run([&] { return two.a.ends.size() == 8; }));
    CHECK(two.a.each_once());
    CHECK(first.to_a.to == to);
    two.b.shard.reset();  // it may still have bytes for memory that ends here
}

TEST_CASE("a shard ends while its endpoint is borrowed", "[shards][T8]") {
    for (int i = 0; i < 20; ++i) {
        Two two;
        REQUIRE(two.borrow(two.a));
        Exchange exchange(1, 2, words_of_mib);
        exchange.post(two);
        two.a.shard.reset();
        two.b.shard.reset();
    }
}

TEST_CASE("a loop that drives a borrowed endpoint sleeps until something comes", "[shards][T8]") {
    Two two;
    REQUIRE(two.borrow(two.a));
    REQUIRE(two.borrow(two.b));
    Exchange exchange(1, 1, words_of_mib / 4);
    exchange.post(two);
    REQUIRE(two.run([&] { return exchange.over(two); }));
    const size_t turns = two.turns;
    CHECK_FALSE(two.run([] { return false; }, 100ms));  // nothing is to come
    CHECK(two.turns - turns < 50);
}
