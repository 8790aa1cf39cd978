// The queue between two threads of the daemon, on one thread: order, bounds, ownership; and the outbox.
#include "core/spsc_queue.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;

TEST_CASE("first in, first out, also around the end of the ring", "[core]") {
    SpscQueue<int> q(4);
    int next_in = 0, next_out = 0;
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < 3; ++i) {
            int value = next_in++;
            REQUIRE(q.push(value));
        }
        for (int i = 0; i < 3; ++i) REQUIRE(q.pop() == next_out++);
        CHECK_FALSE(q.pop());
    }
}

TEST_CASE("a full queue refuses and leaves the value alone", "[core]") {
    SpscQueue<std::unique_ptr<int>> q(4);
    for (int i = 0; i < 4; ++i) {
        auto value = std::make_unique<int>(i);
        REQUIRE(q.push(value));
        CHECK(value == nullptr);
    }
    auto fifth = std::make_unique<int>(4);
    CHECK_FALSE(q.push(fifth));
    REQUIRE(fifth != nullptr);
    CHECK(*q.pop().value() == 0);
    CHECK(q.push(fifth));
    for (int i = 1; i < 5; ++i) CHECK(*q.pop().value() == i);
    CHECK(q.empty());
}

TEST_CASE("a capacity is rounded up to a power of two", "[core]") {
    SpscQueue<int> q(5);
    int n = 0;
    for (int value = 0; q.push(value); ++value) ++n;
    CHECK(n == 8);
    SpscQueue<int> one(1);
    int value = 1, second = 2;
    CHECK(one.push(value));
    CHECK_FALSE(one.push(second));
    CHECK(one.pop() == 1);
    CHECK(one.empty());
}

TEST_CASE("what was taken out is the taker's alone; the slot keeps nothing alive", "[core]") {
    SpscQueue<std::shared_ptr<int>> q(8);
    auto value = std::make_shared<int>(5);
    std::weak_ptr<int> watch = value;
    REQUIRE(q.push(value));
    CHECK_FALSE(q.empty());
    q.pop();
    CHECK(watch.expired());
}

TEST_CASE("what is left in a queue dies with it", "[core]") {
    std::weak_ptr<int> watch;
    {
        SpscQueue<std::shared_ptr<int>> q(8);
        auto value = std::make_shared<int>(5);
        watch = value;
        q.push(value);
    }
    CHECK(watch.expired());
}

TEST_CASE("an outbox keeps order while its queue is full, and says when all is in", "[core]") {
    SpscQueue<int> q(2);
    Outbox<int> out(q);
    for (int i = 0; i < 7; ++i) out.push(i);
    CHECK_FALSE(out.flush());
    int expected = 0;
    CHECK(q.pop() == expected++);
    out.push(7);  // must not overtake 2 .. 6, although there is room
    bool all_in = false;
    for (int i = 0; i < 10; ++i) {
        all_in = out.flush();
        while (auto value = q.pop()) CHECK(*value == expected++);
    }
    CHECK(all_in);
    CHECK(expected == 8);
}
