// Many sleepers on one word: the caller wakes a few, another thread the rest, and none is forgotten. Users of
// whom a wake is slow are woken elsewhere [S17].
#include "local/crowd_waker.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "local/futex.hpp"

using namespace nexar::local;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

// Words with so many sleepers that none is ever woken to the end; each wake of a crowd waits for let_go().
class Crowds {
  public:
    struct Wake {
        uint32_t* word;
        int most;
        bool here;
    };
    CrowdWaker::Wake wake() {
        return [this](uint32_t* word, int most) {
            std::unique_lock lock(mutex_);
            const bool here = std::this_thread::get_id() == caller_;
            wakes_.push_back({word, most, here});
            changed_.notify_all();
            if (!here) changed_.wait(lock, [this] { return free_ > 0; });
            if (!here) --free_;
            return std::min(most, sleepers);
        };
    }
    void let_go(size_t crowds) {
        const std::lock_guard lock(mutex_);
        free_ += crowds;
        changed_.notify_all();
    }
    // The words whose crowds were begun elsewhere, once there are so many.
    std::vector<uint32_t*> elsewhere(size_t count) {
        std::unique_lock lock(mutex_);
        std::vector<uint32_t*> out;
        changed_.wait(lock, [&] {
            out.clear();
            for (const Wake& wake : wakes_)
                if (!wake.here) out.push_back(wake.word);
            return out.size() >= count;
        });
        return out;
    }
    std::deque<Wake> wakes() {
        const std::lock_guard lock(mutex_);
        return wakes_;
    }
    int sleepers = 3000;

  private:
    const std::thread::id caller_ = std::this_thread::get_id();
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Wake> wakes_;
    size_t free_ = 0;
};

using Woken = std::vector<std::pair<uint32_t*, bool>>;  // the word, and whether the caller woke it

// Wakes that take as long as a test says, by clocks that only they move.
class SlowWakes {
  public:
    struct Cost {
        nexar::Duration wall{0}, own{0};
    };
    CrowdWaker::Wake wake() {
        return [this](uint32_t* word, int most) {
            const bool few = sleepers > 1 && most <= CrowdWaker::here_max;
            const Cost cost = few ? Cost{few_cost, few_cost} : costs[word];
            wall_ += cost.wall.count();
            own_ += cost.own.count();
            const std::lock_guard lock(mutex_);
            woken_.emplace_back(word, std::this_thread::get_id() == caller_);
            return std::min(most, sleepers);
        };
    }
    CrowdWaker::Clocks clocks() {
        return {[this] { return nexar::Time(nexar::Duration(wall_)); },
                [this] {
                    ++own_looks;
                    return nexar::Time(nexar::Duration(own_));
                }};
    }
    void pass(nexar::Duration time) { wall_ += time.count(); }
    Woken take() {
        const std::lock_guard lock(mutex_);
        return std::exchange(woken_, {});
    }
    std::map<uint32_t*, Cost> costs;
    nexar::Duration few_cost{0};
    int sleepers = 1;
    std::atomic<int> own_looks{0};

  private:
    const std::thread::id caller_ = std::this_thread::get_id();
    std::atomic<int64_t> wall_{1'000'000'000}, own_{0};
    std::mutex mutex_;
    Woken woken_;
};

}  // namespace

TEST_CASE("[S17] of a crowd the caller wakes a few, and another thread the rest", "[local]") {
    Crowds crowds;
    uint32_t word = 0;
    const auto opened = *CrowdWaker::open(crowds.wake());
    CrowdWaker& waker = *opened;
    waker.wake_all(1, &word, {});  // returns although the crowd is not awake
    CHECK(crowds.elsewhere(1) == std::vector<uint32_t*>{&word});
    const auto wakes = crowds.wakes();
    REQUIRE(wakes.size() == 2);
    CHECK((wakes[0].here && wakes[0].most == CrowdWaker::here_max));
    CHECK(wakes[1].most == INT_MAX);
    crowds.let_go(1);
}

TEST_CASE("[S17] where few sleep, the caller wakes all, and no thread is needed", "[local]") {
    Crowds crowds;
    crowds.sleepers = CrowdWaker::here_max - 1;
    uint32_t word = 0;
    const auto opened = *CrowdWaker::open(crowds.wake());
    CrowdWaker& waker = *opened;
    waker.wake_all(1, &word, {});
    CHECK(crowds.wakes().size() == 1);
}

TEST_CASE("[S17] a user's crowds wait for each other, and for nobody else's, and a word waits once",
          "[local]") {
    Crowds crowds;
    uint32_t one[4] = {}, two[2] = {};
    const auto opened = *CrowdWaker::open(crowds.wake());
    CrowdWaker& waker = *opened;
    waker.wake_all(1, &one[0], {});
    crowds.elsewhere(1);  // it is being woken: others of this user queue behind it
    for (uint32_t& word : one) waker.wake_all(1, &word, {});
    for (uint32_t& word : one) waker.wake_all(1, &word, {});
    for (uint32_t& word : two) waker.wake_all(2, &word, {});
    CHECK(crowds.elsewhere(2) == std::vector<uint32_t*>{&one[0], &two[0]});
    crowds.let_go(100);
    auto words = crowds.elsewhere(7);
    REQUIRE(waker.idle_within(60));
    CHECK(crowds.elsewhere(7).size() == 7);
    std::erase_if(words, [&](const uint32_t* word) { return word == &two[0] || word == &two[1]; });
    // one[0] again: who slept there after the wake began may not have been woken by it.
    CHECK(words == std::vector<uint32_t*>{&one[0], &one[0], &one[1], &one[2], &one[3]});
}

TEST_CASE("[S17] memory is kept until its crowd is awake, and all are awake when the waker has ended",
          "[local]") {
    Crowds crowds;
    uint32_t words[2] = {};
    auto memory = std::make_shared<int>(1);
    {
        const auto opened = *CrowdWaker::open(crowds.wake());
        CrowdWaker& waker = *opened;
        for (uint32_t& word : words) waker.wake_all(1, &word, memory);
        crowds.elsewhere(1);
        CHECK(memory.use_count() == 3);
        crowds.let_go(2);
    }
    CHECK(memory.use_count() == 1);
    CHECK(crowds.elsewhere(2).size() == 2);
}

TEST_CASE("[S17] a user whose wakes are slow is woken elsewhere, nobody else is, and none is lost",
          "[local]") {
    SlowWakes wakes;
    uint32_t crowded = 0, quick = 0, other = 0;
    wakes.costs[&crowded] = {milliseconds(15), milliseconds(15)};
    const auto opened = *CrowdWaker::open(wakes.wake(), wakes.clocks());
    CrowdWaker& waker = *opened;
    waker.wake_all(1, &quick, {});
    for (int i = 0; i < 2; ++i) waker.wake_all(1, &crowded, {});
    // Two slow wakes, to learn it: of the first one only the wall clock is known.
    CHECK(wakes.take() == Woken{{&quick, true}, {&crowded, true}, {&crowded, true}});
    waker.wake_all(2, &other, {});
    CHECK(wakes.take() == Woken{{&other, true}});
    for (uint32_t* word : {&crowded, &quick}) {
        waker.wake_all(1, word, {});
        REQUIRE(waker.idle_within(60));
        CHECK(wakes.take() == Woken{{word, false}});
    }
}

TEST_CASE("[S17] a user is woken elsewhere until no wake of his was slow for a while", "[local]") {
    SlowWakes wakes;
    uint32_t crowded = 0, quick = 0;
    wakes.costs[&crowded] = {milliseconds(15), milliseconds(15)};
    const auto opened = *CrowdWaker::open(wakes.wake(), wakes.clocks());
    CrowdWaker& waker = *opened;
    for (int i = 0; i < 2; ++i) waker.wake_all(1, &crowded, {});
    wakes.take();
    for (uint32_t* word : {&quick, &crowded, &quick}) {  // the last one because of the second
        wakes.pass(CrowdWaker::apart * 2 / 5);
        waker.wake_all(1, word, {});
        REQUIRE(waker.idle_within(60));
        CHECK(wakes.take() == Woken{{word, false}});
        if (word == &crowded) wakes.pass(CrowdWaker::apart / 2);
    }
    wakes.pass(CrowdWaker::apart);
    // One more slow wake is enough then.
    for (uint32_t* word : {&quick, &crowded, &quick}) waker.wake_all(1, word, {});
    REQUIRE(waker.idle_within(60));
    CHECK(wakes.take() == Woken{{&quick, true}, {&crowded, true}, {&quick, false}});
    wakes.pass(CrowdWaker::apart * 2);
    waker.wake_all(1, &quick, {});
    CHECK(wakes.take() == Woken{{&quick, true}});
}

TEST_CASE("[S17] wakes that are a little slow now and then are forgiven, many of them are not", "[local]") {
    for (const bool often : {false, true}) {
        SlowWakes wakes;
        uint32_t word = 0;
        // 0.19 ms too long: one unmeasured, then 14 until that is above 2 ms, less 0.04 ms forgiven between
        // two.
        wakes.costs[&word] = {CrowdWaker::slow + microseconds(200), CrowdWaker::slow + microseconds(200)};
        const auto opened = *CrowdWaker::open(wakes.wake(), wakes.clocks());
        CrowdWaker& waker = *opened;
        size_t elsewhere = 0;
        for (int i = 0; i < 100; ++i) {
            wakes.pass(often ? milliseconds(20) : milliseconds(150));
            waker.wake_all(1, &word, {});
            REQUIRE(waker.idle_within(60));
            elsewhere += wakes.take() == Woken{{&word, false}} ? 1 : 0;
        }
        CHECK(elsewhere == (often ? 85 : 0));
    }
}

TEST_CASE("[S17] a wake that waited for the processor is not slow", "[local]") {
    SlowWakes wakes;
    uint32_t word = 0;
    wakes.costs[&word] = {milliseconds(15), microseconds(5)};
    const auto opened = *CrowdWaker::open(wakes.wake(), wakes.clocks());
    CrowdWaker& waker = *opened;
    for (int i = 0; i < 2; ++i) {
        waker.wake_all(1, &word, {});
        CHECK(wakes.take() == Woken{{&word, true}});
    }
}

TEST_CASE("[S17] to wake many threads takes long, and is not slow", "[local]") {
    SlowWakes wakes;
    uint32_t word = 0;
    const auto opened = *CrowdWaker::open(wakes.wake(), wakes.clocks());
    CrowdWaker& waker = *opened;
    wakes.sleepers = 300;
    wakes.costs[&word] = {milliseconds(2), milliseconds(2)};
    wakes.few_cost = microseconds(40);
    waker.wake_all(1, &word, {});
    REQUIRE(waker.idle_within(60));
    CHECK(wakes.take() == Woken{{&word, true}, {&word, false}});
    wakes.sleepers = 1;
    waker.wake_all(1, &word, {});
    CHECK(wakes.take() == Woken{{&word, true}});
}

TEST_CASE("[S17] quick wakes cost no look at the thread's own clock", "[local]") {
    SlowWakes wakes;
    uint32_t word = 0;
    wakes.costs[&word] = {microseconds(1), microseconds(1)};
    const auto opened = *CrowdWaker::open(wakes.wake(), wakes.clocks());
    CrowdWaker& waker = *opened;
    for (int i = 0; i < 100; ++i) waker.wake_all(1, &word, {});
    CHECK(wakes.own_looks == 0);
}

TEST_CASE("[S17] real sleepers all wake", "[local]") {
    std::atomic<uint32_t> word{0}, awake{0};
    auto* const raw = reinterpret_cast<uint32_t*>(&word);
    const auto opened = *CrowdWaker::open();
    CrowdWaker& waker = *opened;
    std::vector<std::thread> threads;
    for (int i = 0; i < 64; ++i)
        threads.emplace_back([&] {
            for (uint32_t round = 0; round < 100; ++round) {
                while (word.load() == round)
                    ::syscall(SYS_futex, raw, FUTEX_WAIT, round, nullptr, nullptr, 0);
                ++awake;
                while (awake.load() < 64 * (round + 1) && word.load() == round + 1) std::this_thread::yield();
            }
        });
    for (uint32_t round = 0; round < 100; ++round) {
        word.store(round + 1);
        waker.wake_all(1, raw, {});
        while (awake.load() < 64 * (round + 1)) std::this_thread::yield();
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(awake.load() == 6400);
}
