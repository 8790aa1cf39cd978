// Bulk transfers between two shards: whole, over connections that are cut, withdrawn, and with a peer
// dropped.
#include <cstdio>

#include "pair.hpp"

using namespace nexar;
using namespace nexar::shards::test;
using shards::DropPeer;
using shards::Withdraw;

namespace {

// A second process with b's key and incarnation that dials a's shard: a takes the new connection for b's and
// closes the old one. It never reads a frame, so what a sends over it is lost.
class Usurper {
  public:
    explicit Usurper(const Node& as) : Usurper(as, as.incarnation) {}
    Usurper(const Node& as, const Incarnation& incarnation) : mesh_({}), identity_(as.identity()) {
        transport::QuicPort::Options options;
        options.listen = *quic::Address::parse("127.0.0.1:0");
        options.quic.listen = false;
        auto made = transport::QuicPort::open(std::move(options), identity_, judge);
        if (!made) FAIL(made.error().text);
        port_ = std::move(*made);
        connections::Preamble ours;
        ours.purpose = connections::Purpose::bulk;
        ours.incarnation = incarnation;
        carrier_ = std::make_unique<transport::QuicCarrier>(port_->endpoint(), port_->local());
        links_ = std::make_unique<connections::Channels>(*carrier_, mesh_, as.leaf.id, ours);
    }
    ~Usurper() {
        links_.reset();
        carrier_.reset();
    }
    void dial(const Node& to) {
        REQUIRE(links_->dial(Loop::now(), to.shard->local_address().text(), to.leaf.id));
    }
    void turn() {
        const Time now = Loop::now();
        port_->on_readable(now);
        port_->on_time(now);
        while (auto event = port_->poll_event()) carrier_->on_event(now, *event, *links_);
        while (links_->poll_opened()) ++opened;
        while (auto end = links_->poll_closed()) {
            ++closed;
            why = end->why;
        }
        port_->flush(now);
    }
    size_t opened = 0, closed = 0;
    connections::ClosedBy why;

  private:
    link::Mesh mesh_;
    quic::Identity identity_;
    std::unique_ptr<transport::QuicPort> port_;
    std::unique_ptr<transport::QuicCarrier> carrier_;
    std::unique_ptr<connections::Channels> links_;
};

const link::Amount& bulk_of(const std::array<link::Amount, class_count>& counts) {
    return counts[index_of(Class::bulk)];
}

void transfer_64_mib(bool reduce) {
    Pair pair;
    pair.introduce();
    Transfers t(1, 1, (64u << 20) / 4, reduce);
    const Time begin = Loop::now();
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == 1 && pair.b.over() == 1; }));
    const double seconds = std::chrono::duration<double>(Loop::now() - begin).count();
    std::printf("64 MiB, %s: %.2f s\n", reduce ? "receive and reduce" : "copy", seconds);
    CHECK(pair.a.ends[100].done == 1);
    CHECK(pair.b.ends[200].done == 1);
    CHECK(t.wrong() == 0);
}

}  // namespace

TEST_CASE("64 MiB arrive and are copied or added, each word once", "[shards]") {
    transfer_64_mib(false);
    transfer_64_mib(true);
}

TEST_CASE("what a shard has counted is known when its transfer has ended", "[shards][U10][C7]") {
    Pair pair;
    pair.a.start(2, 1h);  // never sleeps
    pair.b.start(2, 1h);
    pair.introduce();
    Transfers t(1, 1, 100'000, false);
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == 1; }));
    CHECK(bulk_of(pair.a.traffic->read().received).payload == 400'000);
    CHECK(bulk_of(pair.a.shard->traffic().received).payload == 400'000);
    CHECK(bulk_of(pair.b.traffic->read().sent) == bulk_of(pair.a.traffic->read().received));
}

namespace {

// Until `done`; what has come is looked at only when the shard has woken this thread. How often it has.
size_t wakes_until(Pair& pair, Node& node, auto done) {
    size_t wakes = 0;
    for (const Time end = Loop::now() + 20s; !done() && Loop::now() < end;) {
        node.wakeup.announce_sleep();
        pollfd one{node.wakeup.fd(), POLLIN, 0};
        if (poll(&one, 1, 1) > 0) {
            ++wakes;
            node.wakeup.drain();
            node.collect();
        }
        Node& other = &node == &pair.a ? pair.b : pair.a;
        other.collect();
    }
    REQUIRE(done());
    return wakes;
}

// b sends the second of two transfers when a has applied the first: how often a is woken for both.
size_t wakes_for_two(bool together, Duration yield_window) {
    Pair pair;
    pair.a.start(2, yield_window);
    pair.b.start(2, yield_window);
    pair.introduce();
    Transfers t(1, 2, 100'000, true);
    link::Batch recvs = t.recvs(peer_b, 100);
    recvs.awaited_together = together;
    pair.a.shard->post(std::move(recvs));
    link::Batch first = t.sends(peer_a, 200), second = first;
    first.sends.pop_back();
    second.sends.erase(second.sends.begin());
    second.first_handle = 201;
    pair.b.shard->post(std::move(first));
    size_t wakes = wakes_until(pair, pair.a, [&] { return pair.b.ends[200].done == 1; });
    pair.b.shard->post(std::move(second));
    wakes += wakes_until(pair, pair.a, [&] { return pair.a.over() == 2; });
    CHECK(t.wrong() == 0);
    return wakes;
}

}  // namespace

TEST_CASE("of a batch that is awaited together only the last end wakes the control loop", "[shards][T7]") {
    CHECK(wakes_for_two(false, 1h) >= 2);  // each is awaited
    // A shard with so long a window sleeps only where others compute, and then wakes it before.
    size_t wakes = 2;
    for (int attempt = 0; wakes != 1 && attempt < 100; ++attempt) wakes = wakes_for_two(true, 1h);
    CHECK(wakes == 1);
}

TEST_CASE("before a shard sleeps it wakes the control loop for what has ended", "[shards][T7]") {
    Pair pair;
    pair.introduce();
    Transfers t(1, 2, 100'000, true);
    link::Batch recvs = t.recvs(peer_b, 100);
    recvs.awaited_together = true;
    pair.a.shard->post(std::move(recvs));
    link::Batch first = t.sends(peer_a, 200);
    first.sends.pop_back();
    pair.b.shard->post(std::move(first));
    CHECK(wakes_until(pair, pair.a, [&] { return pair.a.ends[100].done == 1; }) >= 1);
    CHECK(pair.a.over() == 1);
}

TEST_CASE("a shard counts itself while it has transfers that have not ended", "[shards][K35]") {
    Pair pair;
    pair.introduce();
    CHECK(pair.run([&] { return pair.a.working() == 0; }));
    Transfers t(1, 2, 100'000, true);
    pair.a.shard->post(t.recvs(peer_b, 100));
    CHECK(pair.run([&] { return pair.a.working() == 1; }));
    CHECK(pair.b.working() == 0);  // it has been granted what it does not send yet
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == 2 && pair.b.over() == 2; }));
    CHECK(pair.run([&] { return pair.a.working() + pair.b.working() == 0; }));
    Transfers unanswered(2, 1, 100'000, true);
    pair.a.shard->post(unanswered.recvs(peer_b, 300));
    CHECK(pair.run([&] { return pair.a.working() == 1; }));
    pair.a.shard->post(Withdraw{key(2, 0).op});
    CHECK(pair.run([&] { return pair.a.working() == 0; }));
    Transfers last(3, 1, 100'000, true);
    pair.a.shard->post(last.recvs(peer_b, 400));
    CHECK(pair.run([&] { return pair.a.working() == 1; }));
    pair.a.shard.reset();
    CHECK(pair.a.working() == 0);
}

TEST_CASE("a shard does not count itself for transfers that stand still", "[shards][K35]") {
    Pair pair;
    pair.a.shard.reset();
    pair.a.stalled_after = 1ms;
    pair.a.start(2);
    pair.introduce();
    const auto frames = [&] {
        uint64_t out = 0;
        for (const link::Amount& each : pair.a.shard->traffic().sent) out += each.frames;
        return out;
    };
    const uint64_t before = frames();
    Transfers t(1, 2, 100'000, true);
    pair.a.shard->post(t.recvs(peer_b, 100));
    REQUIRE(pair.run([&] { return frames() > before; }));  // the grants
    REQUIRE(pair.run([&] { return pair.a.working() == 0; }));
    CHECK(pair.a.over() == 0);
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == 2; }));
}

TEST_CASE("the counters of a shard that is held amid a turn are read without it", "[shards][U10][C7]") {
    Pair pair;
    pair.introduce();
    Transfers t(1, 3, 100'000, true);
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == 3 && pair.b.over() == 3; }));
    pair.a.gate.closed = true;
    Usurper usurper(pair.b, {0, 99});
    usurper.dial(pair.a);
    pair.also = [&] { usurper.turn(); };
    REQUIRE(pair.run([&] { return pair.a.gate.held.load(); }));

    const link::TrafficCounts held = pair.a.traffic->read(), other = pair.b.traffic->read();
    CHECK(bulk_of(held.received).payload == 3 * 400'000);
    CHECK(bulk_of(held.received) == bulk_of(other.sent));
    CHECK(bulk_of(pair.a.shard->traffic().received) == bulk_of(held.received));
    pair.a.gate.open();
}

TEST_CASE("receives posted before the connection is there wait for it", "[shards]") {
    Pair pair;
    Transfers t(1, 4, 100'000, true);
    pair.a.shard->post(pair.of_b(false));
    pair.b.shard->post(pair.of_a(true));
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == 4 && pair.b.over() == 4; }));
    CHECK(pair.a.failed() + pair.b.failed() == 0);
    CHECK(t.wrong() == 0);
}

TEST_CASE("a peer that dials before it is introduced waits for its introduction", "[shards]") {
    Pair pair;
    pair.b.shard->post(pair.of_a(true));
    // The connection is up for b before a can assign it to a peer.
    REQUIRE(pair.run([&] { return pair.b.ups > 0; }));
    CHECK(pair.a.ups == 0);
    pair.a.shard->post(pair.of_b(false));
    REQUIRE(pair.run([&] { return pair.a.ups > 0; }));
    Transfers t(1, 2, 50'000, false);
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == 2 && pair.b.over() == 2; }));
    CHECK(t.wrong() == 0);
}

TEST_CASE("connections that are cut in the middle and dialled again apply every chunk once", "[shards]") {
    Pair pair;
    pair.introduce();
    constexpr size_t count = 24;
    Transfers t(1, count, (4u << 20) / 4, true);
    Usurper usurper(pair.b);
    size_t cuts = 0;
    pair.also = [&] {
        // Repeats while transfers are in flight, each time after b has reconnected.
        const bool b_is_back = pair.b.ups > cuts && pair.a.ups > 2 * cuts;
        if (cuts < 4 && b_is_back && pair.a.over() >= cuts * 4 && pair.a.over() < count) {
            usurper.dial(pair.a);
            ++cuts;
        }
        usurper.turn();
    };
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() == count && pair.b.over() == count; }));
    CHECK(cuts >= 1);
    CHECK(pair.b.downs.size() >= 1);
    std::printf("%zu cuts, b saw %zu, the usurper was closed %zu times\n", cuts, pair.b.downs.size(),
                usurper.closed);
    CHECK((pair.a.each_once() && pair.b.each_once()));
    CHECK(pair.a.failed() + pair.b.failed() == 0);
    CHECK(t.wrong() == 0);
    CHECK((pair.a.garbage.empty() && pair.b.garbage.empty()));
}

TEST_CASE("a withdrawn op ends all its transfers once, and its memory is not touched again", "[shards]") {
    Pair pair;
    pair.introduce();
    constexpr size_t count = 32;
    Transfers t(1, count, (2u << 20) / 4, true);
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() >= 1; }));
    pair.a.shard->post(Withdraw{key(1, 0).op});
    REQUIRE(pair.run([&] { return pair.a.over() == count; }));
    const auto snapshot = t.to;
    pair.b.shard->post(Withdraw{key(1, 0).op});
    REQUIRE(pair.run([&] { return pair.b.over() == count; }));
    // When another op has completed, everything that was in flight for the first one has arrived.
    Transfers next(2, 4, 100'000, true);
    pair.a.shard->post(next.recvs(peer_b, 300));
    pair.b.shard->post(next.sends(peer_a, 400));
    REQUIRE(pair.run([&] { return pair.a.over() == count + 4 && pair.b.over() == count + 4; }));
    CHECK(t.to == snapshot);
    CHECK(next.wrong() == 0);
    CHECK((pair.a.each_once() && pair.b.each_once()));
    for (uint64_t i = 0; i < 4; ++i) CHECK(pair.a.ends[300 + i].done == 1);
}

TEST_CASE("a dropped peer fails its transfers, and later ones at once", "[shards]") {
    Pair pair;
    pair.introduce();
    constexpr size_t count = 16;
    Transfers t(1, count, (4u << 20) / 4, false);
    pair.a.shard->post(t.recvs(peer_b, 100));
    pair.b.shard->post(t.sends(peer_a, 200));
    REQUIRE(pair.run([&] { return pair.a.over() >= 1; }));
    pair.a.shard->post(DropPeer{peer_b});
    REQUIRE(pair.run([&] { return pair.a.over() == count; }));
    CHECK(pair.a.each_once());
    Transfers later(2, 2, 1000, false);
    pair.a.shard->post(later.recvs(peer_b, 300));
    REQUIRE(pair.run([&] { return pair.a.over() == count + 2; }));
    CHECK(pair.a.ends[300].failed == 1);
    CHECK(pair.a.ends[301].failed == 1);
    // b receives the closing reason; its control loop decides about the peer.
    REQUIRE(pair.run([&] { return !pair.b.downs.empty(); }));
    pair.b.shard->post(DropPeer{peer_a});
    REQUIRE(pair.run([&] { return pair.b.over() == count; }));
    CHECK(pair.b.each_once());
}

TEST_CASE("an older incarnation of a node is refused when a newer one is known", "[shards]") {
    Pair pair;
    pair.introduce();
    Usurper old(pair.b, {0, 99});
    old.dial(pair.a);
    pair.also = [&] { old.turn(); };
    REQUIRE(pair.run([&] { return old.closed == 1; }));
    CHECK(old.why.code == connections::Channels::close_refused);
    // b's own connection is untouched.
    CHECK(pair.a.downs.empty());
    CHECK(pair.b.downs.empty());
}

TEST_CASE("a bulk connection to a process that was killed ends by a probe, and the next one is used",
          "[shards][P11]") {
    Pair pair;
    pair.a.shard->post(pair.of_b(false));
    auto killed = std::make_unique<Usurper>(pair.b);
    killed->dial(pair.a);
    pair.also = [&] {
        if (killed) killed->turn();
    };
    REQUIRE(pair.run([&] { return pair.a.ups == 1; }));
    killed.reset();  // its socket closes without a CONNECTION_CLOSE: only ICMP answers from now on
    Transfers t(1, 2, 50'000, false);
    pair.a.shard->post(t.sends(peer_b, 100));
    pair.b.shard->post(t.recvs(peer_a, 200));
    REQUIRE(pair.run([&] { return !pair.a.downs.empty(); }, 10s));
    pair.b.shard->post(pair.of_a(true));
    REQUIRE(pair.run([&] { return pair.a.over() == 2 && pair.b.over() == 2; }));
    CHECK(t.wrong() == 0);
}
