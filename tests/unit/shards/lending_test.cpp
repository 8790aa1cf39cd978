// When the control loop drives a shard's endpoint itself: the rules of [T8], without a shard and a clock.
#include "shards/lending.hpp"

#include <catch2/catch_test_macros.hpp>
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

// `sends`: how many bytes in all.
link::Batch batch_of(uint64_t group, size_t sends) {
    link::Batch out;
    out.recvs.emplace_back();
    out.recvs.back().key.op.group = GroupId{group, 2, 3};
    out.sends.emplace_back();
    out.sends.back().key.op.group = GroupId{group, 2, 3};
    out.sends.back().memory = {{Place{}, sends}};
    return out;
}

struct Loop {
    Time now{1h};
    size_t running = 1;
    Fake shard, other;
    Lending lending{[this] { return running; }};

    Loop() {
        lending.add(shard);
        lending.add(other);
    }
    void post(uint64_t group, size_t bytes, const Fake* to) {
        lending.posting(now, batch_of(group, bytes), to);
        if (to != nullptr) const_cast<Fake*>(to)->moves = true;
    }
    // Its transfers end, and the linger is over.
    void end() {
        shard.moves = false;
        now += Lending::linger;
        lending.receive(now);
        REQUIRE_FALSE(shard.borrowed);
    }
};

constexpr size_t mib = 1024 * 1024;

}  // namespace

TEST_CASE("the loop borrows for a single operation of middle size", "[shards][T8]") {
    Loop loop;
    loop.post(1, Lending::bytes_max, &loop.shard);
    CHECK(loop.shard.borrowed);
    CHECK_FALSE(loop.other.borrowed);
    loop.post(1, mib, &loop.other);  // the same operation's, on another shard
    CHECK(loop.shard.borrowed);
    CHECK(loop.other.borrowed);
}

TEST_CASE("the loop borrows neither beside another operation, nor a large one, nor from a thread at work",
          "[shards][T8]") {
    Loop loop;
    SECTION("beside another") {
        loop.running = 2;
    }
    SECTION("large") {
        loop.post(1, Lending::bytes_max + 1, &loop.shard);
        CHECK_FALSE(loop.shard.borrowed);
        loop.shard.moves = false;
    }
    SECTION("at work") {
        loop.shard.works = true;
    }
    loop.post(1, mib, &loop.shard);
    CHECK(loop.shard.lent == 0);
}

TEST_CASE("what adds up to more goes back to the thread", "[shards][T8]") {
    Loop loop;
    loop.post(1, 3 * mib, &loop.shard);
    loop.post(1, mib, &loop.shard);
    CHECK(loop.shard.borrowed);
    loop.post(1, 1, &loop.shard);
    CHECK_FALSE(loop.shard.borrowed);
}

TEST_CASE("what follows an operation that is over counts anew", "[shards][T8]") {
    Loop loop;
    for (int i = 0; i < 10; ++i) {
        loop.post(1, 3 * mib, &loop.shard);
        loop.shard.moves = false;
    }
    CHECK(loop.shard.borrowed);
    CHECK(loop.shard.lent == 1);
}

TEST_CASE("anything else beside it ends the loan, and a pause follows", "[shards][T8]") {
    Loop loop;
    loop.post(1, mib, &loop.shard);
    REQUIRE(loop.shard.borrowed);
    SECTION("another group's transfers, wherever they go") {
        loop.post(2, 8, nullptr);
    }
    SECTION("another group's, on another shard") {
        loop.post(2, 8, &loop.other);
        CHECK_FALSE(loop.other.borrowed);
    }
    SECTION("another operation") {
        loop.running = 2;
        loop.lending.receive(loop.now);
    }
    SECTION("visitors") {
        loop.shard.visited = true;
        loop.lending.receive(loop.now);
    }
    CHECK_FALSE(loop.shard.borrowed);
    loop.running = 1;
    loop.shard.visited = loop.shard.moves = loop.other.moves = false;
    loop.now += Lending::pause_min - 1ns;
    loop.post(1, mib, &loop.shard);
    CHECK_FALSE(loop.shard.borrowed);
    loop.shard.moves = false;
    loop.now += 1ns;
    loop.post(1, mib, &loop.shard);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("another group's transfers after its own are over are not beside them", "[shards][T8]") {
    Loop loop;
    loop.post(1, mib, &loop.shard);
    loop.shard.moves = false;
    loop.post(2, mib, &loop.shard);
    CHECK(loop.shard.borrowed);
    loop.shard.moves = false;
    loop.post(1, 8, nullptr);
    CHECK(loop.shard.borrowed);
}

TEST_CASE("a batch without transfers is nothing beside", "[shards][T8]") {
    Loop loop;
    loop.post(1, mib, &loop.shard);
    loop.lending.posting(loop.now, {}, nullptr);
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
        loop.post(2, 8, nullptr);
        REQUIRE_FALSE(loop.shard.borrowed);
        while (!loop.shard.borrowed && loop.now < began + 2 * Lending::pause_max) {
            loop.shard.moves = false;
            loop.now += 1ms;
            loop.post(1, mib, &loop.shard);
        }
        return loop.now - began;
    };
    loop.post(1, mib, &loop.shard);
    CHECK(pause_after_other() == 20ms);
    for (const Duration expected : {40ms, 80ms, 160ms, 320ms, 640ms, 1000ms, 1000ms})
        CHECK(pause_after_other() == expected);
    loop.now += 2 * Lending::pause_max;
    CHECK(pause_after_other() == 20ms);
}

TEST_CASE("a large operation is a pause that does not double", "[shards][T8]") {
    Loop loop;
    for (int i = 0; i < 5; ++i) {
        loop.post(1, mib, &loop.shard);
        REQUIRE(loop.shard.borrowed);
        loop.post(1, 4 * mib, &loop.shard);
        REQUIRE_FALSE(loop.shard.borrowed);
        loop.shard.moves = false;
        loop.now += Lending::pause_min;
    }
}

TEST_CASE("what a busy thread offers later is accepted, unless others have come meanwhile", "[shards][T8]") {
    Loop loop;
    loop.shard.works = true;
    loop.post(1, mib, &loop.shard);
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
        loop.running = 2;
        loop.post(1, 8, &loop.shard);
        loop.running = 1;
        loop.lending.receive(loop.now);
        CHECK_FALSE(loop.shard.borrowed);
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
    loop.post(1, mib, &loop.shard);
    CHECK(loop.lending.wake_at() == loop.now + Lending::linger);
    loop.shard.finds_work = true;
    loop.now += 5ms;
    CHECK(loop.lending.receive(loop.now));
    CHECK(loop.lending.wake_at() == loop.now + Lending::linger);
    loop.shard.finds_work = false;
    loop.now += Lending::linger - 1ns;
    CHECK_FALSE(loop.lending.receive(loop.now));
    CHECK(loop.shard.borrowed);
    loop.now += 1ns;
    loop.lending.receive(loop.now);
    CHECK_FALSE(loop.shard.borrowed);
    CHECK(loop.shard.given_back == 1);
    CHECK(loop.lending.wake_at() == never);
    loop.shard.moves = false;
    loop.post(1, mib, &loop.shard);  // without a pause
    CHECK(loop.shard.borrowed);
    loop.end();
}
