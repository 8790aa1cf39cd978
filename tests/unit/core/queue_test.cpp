// Queue against std::deque, and what it keeps.
#include "core/queue.hpp"

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

#include "core/random.hpp"

using namespace nexar;

namespace {

// What is popped must not be held.
struct Counted {
    explicit Counted(int value, int& alive) : value_(value), alive_(&alive) { ++*alive_; }
    Counted(Counted&& other) noexcept : value_(other.value_), alive_(std::exchange(other.alive_, nullptr)) {}
    Counted& operator=(Counted&& other) noexcept {
        std::swap(value_, other.value_), std::swap(alive_, other.alive_);
        return *this;
    }
    ~Counted() {
        if (alive_) --*alive_;
    }
    int value() const { return value_; }

  private:
    int value_;
    int* alive_;
};

}  // namespace

TEST_CASE("a queue gives what a deque gives, and holds nothing that it gave", "[core]") {
    Random random(1);
    int alive = 0, next = 0;
    Queue<Counted> queue;
    std::deque<int> model;
    for (int i = 0; i < 100'000; ++i) {
        // Long and short queues in turns.
        if (random.below(100) < ((i / 5000) % 2 == 0 ? 55u : 45u)) {
            model.push_back(next);
            queue.push_back(Counted(next++, alive));
        } else if (!model.empty()) {
            REQUIRE(queue.front().value() == model.front());
            REQUIRE(queue.pop_front().value() == model.front());
            model.pop_front();
        }
        REQUIRE(queue.size() == model.size());
        REQUIRE(queue.empty() == model.empty());
        REQUIRE(alive == int(model.size()));
    }
}

TEST_CASE("a queue that was long keeps no memory of that", "[core]") {
    struct Big {
        std::byte bytes[1024] = {};
    };
    Queue<Big> queue;
    for (int i = 0; i < 1000; ++i) queue.emplace_back();
    CHECK(queue.kept_bytes() >= 1000 * sizeof(Big));
    while (!queue.empty()) queue.pop_front();
    CHECK(queue.kept_bytes() <= queue.kept_bytes_max);
    queue.emplace_back();
    queue.pop_front();
    CHECK(queue.kept_bytes() >= sizeof(Big));  // the next one needs none
}
