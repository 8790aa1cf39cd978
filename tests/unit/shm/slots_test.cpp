#include "shm/slots.hpp"

#include <catch2/catch_test_macros.hpp>
#include <set>

#include "shm/wait_window.hpp"

using namespace nexar;
using namespace nexar::shm;
using namespace std::chrono_literals;

TEST_CASE("the pool hands out every slot once, and keeps the last few for what ends by itself", "[shm]") {
    SlotPool pool(16);
    std::set<uint32_t> slots;
    for (int i = 0; i < 12; ++i) slots.insert(pool.try_take(SlotPool::For::operation)->slot);
    CHECK(!pool.try_take(SlotPool::For::operation));
    for (int i = 0; i < 2; ++i) slots.insert(pool.try_take(SlotPool::For::opening)->slot);
    CHECK(!pool.try_take(SlotPool::For::opening));
    for (int i = 0; i < 2; ++i) slots.insert(pool.try_take(SlotPool::For::command)->slot);

    CHECK(slots.size() == 16);
    CHECK(!pool.try_take(SlotPool::For::command));
    pool.give_back(7);
    CHECK(pool.try_take(SlotPool::For::command)->slot == 7);
}

TEST_CASE("a slot's generation grows with each use, starts above the floor, and is never 0", "[shm][S2]") {
    SlotPool pool(16);
    pool.start_above(41);
    const auto first = *pool.try_take(SlotPool::For::operation);
    CHECK(first.generation == 42);
    pool.give_back(first.slot);
    const auto second = *pool.try_take(SlotPool::For::operation);
    CHECK(second.slot == first.slot);
    CHECK(second.generation == 43);
    CHECK(pool.highest_generation() == 43);
    SlotPool wrapping(16);
    wrapping.start_above(SlotPool::generation_mask);
    CHECK(wrapping.try_take(SlotPool::For::operation)->generation == 1);
}

TEST_CASE("the ledger accepts a slot once, and ends only the generation that it accepted", "[shm][S2]") {
    SlotLedger ledger(16);
    CHECK(ledger.try_accept(3, 9));
    CHECK(!ledger.try_accept(3, 9));
    CHECK(!ledger.try_accept(3, 10));
    CHECK(!ledger.try_accept(16, 1));
    CHECK(ledger.in_flight(3, 9));
    CHECK(!ledger.in_flight(3, 8));
    CHECK(!ledger.try_finish(3, 8));
    CHECK(!ledger.try_finish(99, 8));
    CHECK(ledger.count() == 1);
    CHECK(ledger.try_finish(3, 9));
    CHECK(!ledger.try_finish(3, 9));
    CHECK(ledger.count() == 0);
}

TEST_CASE("a waiter stays longer when waits are short, gives up when they are long, and finds out again",
          "[shm]") {
    WaitWindow window(50us);
    for (int i = 0; i < 40; ++i) window.on_wait_ended(5us);
    CHECK(window.window() > 5us);
    CHECK(window.window() < 25us);
    for (int i = 0; i < 40; ++i) window.on_wait_ended(10ms);
    CHECK(window.window() < 5us);
    for (int i = 0; i < 20; ++i) window.on_wait_ended(5us);
    CHECK(window.window() > 20us);
    CHECK(WaitWindow(0us).window() == 0us);
}

TEST_CASE("spinning is for when all who run have a core", "[shm]") {
    CHECK(WaitWindow::may_spin(1, 2));
    CHECK(!WaitWindow::may_spin(2, 2));
    CHECK(!WaitWindow::may_spin(1, 1));
    CHECK(WaitWindow::may_spin(4, 8));
}
