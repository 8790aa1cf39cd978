// When the control loop drives a shard's endpoint itself: the rules of [T8], without a shard and a clock.
#include "shards/lending.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <chrono>

#include "support/transfers.hpp"

using namespace nexar;
using namespace std::chrono_literals;
using shards::Lending;

namespace {

struct Fake final : shards::Lendable {
    bool works = false;  // its thread
    bool borrowed = false, moves = false, visited = false, due = false;
    bool finds_work = false, offered = false;
    int lent = 0, given_back = 0, declined = 0;

    bool borrow() override {
        if (!borrowed && !works) borrowed = true, offered = false, ++lent;
        return borrowed;
    }
    void give_back() override { borrowed = false, ++given_back; }
    bool is_offered() const override { return offered; }
    void decline() override { offered = false, ++declined; }
    bool is_borrowed() const override { return borrowed; }
    bool has_transfers() const override { return moves; }
    bool has_visitors() const override { return visited; }
    bool receive(Time) override { return borrowed && finds_work; }
    bool send(Time) override { return false; }
    Time wake_at() const override { return never; }
    bool is_due(Time) const override { return due; }
};

// Of an operation; so much is sent and received.
link::Batch batch_of(uint64_t group, uint64_t op, size_t sent, size_t received) {
    const link::OpKey key{GroupId{group, 2, 3}, {}, op};
    link::Batch out;
    if (received > 0) {
        out.recvs.emplace_back();
        out.recvs.back().key.op = key;
        out.recvs.back().memory = {{Place{}, received}};
    }
    if (sent > 0) {
        out.sends.emplace_back();
        out.sends.back().key.op = key;
        out.sends.back().memory = {{Place{}, sent}};
    }
    return out;
}

struct Loop {
    Time now{1h};
    size_t running = 1;
    uint64_t ops = 0;
    Fake shard, other;
    Lending lending{[this] { return running; }};

    Loop() {
        lending.add(shard);
        lending.add(other);
    }
    // The next operation, or one that has begun.
    void post(uint64_t group, size_t bytes, Fake& to) { post_of(group, ++ops, bytes, bytes, to); }
    void post_of(uint64_t group, uint64_t op, size_t sent, size_t received, Fake& to) {
        lending.posting(now, batch_of(group, op, sent, received), to);
        to.moves = true;
    }
    void send_message(size_t bytes) { post_of(1, link::OpKey::message_bit | ++ops, bytes, 0, shard); }
    void call(uint64_t group) { lending.requested(now, GroupId{group, 2, 3}); }
};

constexpr size_t mib = 1024 * 1024;

}  // namespace

TEST_CASE("the loop borrows for a single operation of middle size", "[shards][T8]") {
    Loop loop;
    loop.post(1, Lending::bytes_max, loop.shard);
    CHECK(loop.shard.borrowed);
    CHECK_FALSE(loop.other.borrowed);
}

TEST_CASE("the loop borrows neither beside another operation, nor from a thread at work", "[shards][T8]") {
    Loop loop;
    SECTION("beside another") {
        loop.running = 2;
    }
    SECTION("at work") {
        loop.shard.works = true;
    }
    loop.post(1, mib, loop.shard);
    CHECK(loop.shard.lent == 0);
}

TEST_CASE("messages between its batches do not make a large operation a small one", "[shards][T8]") {
    Loop loop;
    for (uint64_t i = 0; i < 20; ++i) {
        loop.post_of(1, 1, mib, mib, loop.shard);
        CAPTURE(i);
        CHECK(loop.shard.borrowed == (i < 4));
        loop.shard.moves = false;
        loop.post_of(1, link::OpKey::message_bit | (100 + i), 8, 0, loop.other);
        loop.other.moves = false;
    }
    loop.post_of(1, 2, mib, mib, loop.shard);  // the next one is none
    CHECK(loop.shard.borrowed);
}

TEST_CASE("what is sent and what is received count, each by itself", "[shards][T8]") {
    const size_t most = Lending::bytes_max;
    Loop loop;
    SECTION("sent") {
        loop.post_of(1, 1, most + 1, 0, loop.shard);
    }
    SECTION("received") {
        loop.post_of(1, 1, 0, most + 1, loop.shard);
    }
    CHECK(loop.shard.lent == 0);
    loop.shard.moves = false;
    loop.post_of(1, 2, most, most, loop.shard);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("a large operation is the threads' however it is cut, and however soon each part is over",
          "[shards][T8]") {
    Loop loop;
    const bool receives = GENERATE(false, true);
    for (int i = 0; i < 20; ++i) {
        Fake& to = i % 2 == 0 ? loop.shard : loop.other;
        loop.post_of(1, 1, receives ? 0 : mib, receives ? mib : 0, to);
        CHECK(to.borrowed == (i < 4));
        loop.shard.moves = loop.other.moves = false;
    }
    CHECK_FALSE(loop.shard.borrowed);
    loop.post_of(1, 2, mib, mib, loop.shard);  // the next one is not large
    CHECK(loop.shard.borrowed);
}

TEST_CASE("the operation before counts while it is in flight, and those before it do not", "[shards][T8]") {
    Loop loop;
    for (int i = 0; i < 20; ++i) loop.post(1, 2 * mib, loop.shard);
    CHECK(loop.shard.borrowed);
    CHECK(loop.shard.lent == 1);
    loop.post(1, 2 * mib + 1, loop.shard);
    CHECK_FALSE(loop.shard.borrowed);
}

TEST_CASE("of messages all count that came since none was in flight", "[shards][T8]") {
    Loop loop;
    loop.running = 0;
    for (int i = 0; i < 4; ++i) loop.send_message(mib);
    CHECK(loop.shard.borrowed);
    loop.send_message(mib);
    CHECK_FALSE(loop.shard.borrowed);
    loop.shard.moves = false;
    for (int i = 0; i < 20; ++i) {
        loop.send_message(mib);
        loop.shard.moves = false;
    }
    CHECK(loop.shard.borrowed);
    loop.running = 1;
    for (int i = 0; i < 20; ++i) loop.post(1, 2 * mib, loop.shard);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("no message is lent beside a collective of any group", "[shards][T8]") {
    Loop loop;
    loop.send_message(mib);
    CHECK(loop.shard.lent == 0);
    loop.running = 0;
    loop.send_message(mib);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("messages between its batches do not make a large operation a new one", "[shards][T8]") {
    Loop loop;
    for (int i = 0; i < 5; ++i) loop.post_of(1, 1, mib, mib, loop.shard);
    REQUIRE_FALSE(loop.shard.borrowed);
    const size_t bytes = GENERATE(8uz, 5 * mib);
    loop.running = 0;
    loop.shard.moves = false;
    loop.send_message(bytes);
    CHECK(loop.shard.borrowed == (bytes == 8));
    loop.running = 1;
    loop.shard.moves = false;
    loop.post_of(1, 1, mib, mib, loop.shard);
    CHECK_FALSE(loop.shard.borrowed);
}

TEST_CASE("what follows an operation that is over counts anew", "[shards][T8]") {
    Loop loop;
    for (int i = 0; i < 10; ++i) {
        loop.post(1, 3 * mib, loop.shard);
        loop.shard.moves = false;
    }
    CHECK(loop.shard.borrowed);
    CHECK(loop.shard.lent == 1);
}

TEST_CASE("anything else beside it ends the loan, and a pause follows", "[shards][T8]") {
    Loop loop;
    loop.post(1, mib, loop.shard);
    REQUIRE(loop.shard.borrowed);
    SECTION("a call of another group, within this host or not") {
        loop.call(2);
    }
    SECTION("another group's transfers") {
        loop.post(2, 8, loop.other);
        CHECK_FALSE(loop.other.borrowed);
    }
    SECTION("another operation that runs") {
        loop.running = 2;
        loop.lending.receive(loop.now);
    }
    SECTION("another operation that posts") {
        loop.running = 2;
        loop.post(1, 8, loop.shard);
    }
    SECTION("visitors") {
        loop.shard.visited = true;
        loop.lending.receive(loop.now);
    }
    CHECK_FALSE(loop.shard.borrowed);
    loop.running = 1;
    loop.shard.visited = loop.shard.moves = loop.other.moves = false;
    loop.now += Lending::pause_min - 1ns;
    loop.post(1, mib, loop.shard);
    CHECK_FALSE(loop.shard.borrowed);
    loop.shard.moves = false;
    loop.now += 1ns;
    loop.post(1, mib, loop.shard);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("its own group's calls, and others' when its transfers are over, are not beside them",
          "[shards][T8]") {
    Loop loop;
    loop.post(1, mib, loop.shard);
    loop.call(1);
    CHECK(loop.shard.borrowed);
    loop.shard.moves = false;
    loop.call(2);
    loop.post(2, mib, loop.shard);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("a batch without transfers is nothing beside", "[shards][T8]") {
    Loop loop;
    loop.post(1, mib, loop.shard);
    loop.lending.posting(loop.now, {}, loop.other);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("others while the threads drive are no reason for a pause", "[shards][T8]") {
    Loop loop;
    loop.running = 2;
    for (int i = 0; i < 10; ++i) loop.post(1, mib, loop.shard);
    loop.shard.moves = false;
    loop.running = 1;
    loop.post(1, mib, loop.shard);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("pauses double while others come again and again, and are short once they no longer do",
          "[shards][T8]") {
    Loop loop;
    // How long it is until the loop borrows again. Another's comes 1 ms after that.
    const auto pause_after_other = [&] {
        REQUIRE(loop.shard.borrowed);
        loop.now += 1ms;
        const Time began = loop.now;
        loop.call(2);
        REQUIRE_FALSE(loop.shard.borrowed);
        while (!loop.shard.borrowed && loop.now < began + 2 * Lending::pause_max) {
            loop.shard.moves = false;
            loop.now += 1ms;
            loop.post(1, mib, loop.shard);
        }
        return loop.now - began;
    };
    loop.post(1, mib, loop.shard);
    CHECK(pause_after_other() == 20ms);
    for (const Duration expected : {40ms, 80ms, 160ms, 320ms, 640ms, 1000ms, 1000ms})
        CHECK(pause_after_other() == expected);
    loop.now += 2 * Lending::pause_max;
    CHECK(pause_after_other() == 20ms);
}

TEST_CASE("what a busy thread offers later is accepted, unless others have come meanwhile", "[shards][T8]") {
    Loop loop;
    loop.shard.works = true;
    loop.post(1, mib, loop.shard);
    REQUIRE_FALSE(loop.shard.borrowed);
    loop.shard.works = loop.shard.moves = false;
    loop.shard.offered = true;
    CHECK(loop.lending.wake_at() <= loop.now);
    SECTION("nobody else") {
        loop.lending.receive(loop.now);
        CHECK(loop.shard.borrowed);
        CHECK(loop.lending.wake_at() == loop.now + Lending::linger);
    }
    SECTION("in a pause") {
        loop.post(1, 8, loop.other);
        REQUIRE(loop.other.borrowed);
        loop.call(2);
        loop.lending.receive(loop.now);
        CHECK_FALSE(loop.shard.borrowed);
        CHECK(loop.shard.declined == 1);
    }
    SECTION("beside another operation") {
        loop.running = 2;
        loop.lending.receive(loop.now);
        CHECK(loop.shard.lent == 0);
        CHECK(loop.shard.declined == 1);
    }
    SECTION("amid a large one") {
        loop.shard.works = true;
        loop.post_of(1, 1, 4 * mib, 0, loop.shard);
        loop.shard.works = loop.shard.moves = false;
        loop.lending.receive(loop.now);
        CHECK(loop.shard.lent == 0);
        CHECK(loop.shard.declined == 1);
    }
    SECTION("not before it can be") {
        loop.shard.works = true;  // its last events were not polled
        loop.lending.receive(loop.now);
        CHECK_FALSE(loop.shard.borrowed);
        CHECK(loop.shard.declined == 0);
        loop.shard.works = false;
        loop.lending.receive(loop.now);
        CHECK(loop.shard.borrowed);
    }
}

TEST_CASE("an endpoint without work goes back, and the loop wakes for that", "[shards][T8]") {
    Loop loop;
    CHECK(loop.lending.wake_at() == never);
    loop.post(1, mib, loop.shard);
    CHECK(loop.lending.wake_at() == loop.now + Lending::linger);
    loop.shard.finds_work = true;
    loop.now += 5ms;
    CHECK(loop.lending.receive(loop.now));
    CHECK(loop.lending.wake_at() == loop.now + Lending::linger);
    SECTION("nothing comes") {
        loop.shard.finds_work = false;
    }
    SECTION("what comes is of no transfer") {
        loop.shard.moves = false;
    }
    loop.now += Lending::linger - 1ns;
    CHECK(loop.lending.receive(loop.now) == loop.shard.finds_work);
    CHECK(loop.shard.borrowed);
    loop.now += 1ns;
    loop.lending.receive(loop.now);
    CHECK_FALSE(loop.shard.borrowed);
    CHECK(loop.shard.given_back == 1);
    CHECK(loop.lending.wake_at() == never);
    loop.shard.moves = false;
    loop.post(1, mib, loop.shard);  // without a pause
    CHECK(loop.shard.borrowed);
}
