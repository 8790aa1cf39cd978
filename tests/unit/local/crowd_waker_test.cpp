// Many sleepers on one word: the caller wakes a few, another thread the rest, and none is forgotten [S17].
#include "local/crowd_waker.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "local/futex.hpp"

using namespace nexar::local;

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

}  // namespace

TEST_CASE("[S17] of a crowd the caller wakes a few, and another thread the rest", "[local]") {
    Crowds crowds;
    uint32_t word = 0;
    CrowdWaker waker(crowds.wake());
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
    CrowdWaker waker(crowds.wake());
    waker.wake_all(1, &word, {});
    CHECK(crowds.wakes().size() == 1);
}

TEST_CASE("[S17] users' crowds are woken in turns, and a word waits once", "[local]") {
    Crowds crowds;
    uint32_t one[4] = {}, two[2] = {};
    CrowdWaker waker(crowds.wake());
    waker.wake_all(1, &one[0], {});
    crowds.elsewhere(1);  // it is being woken: others queue behind it
    for (uint32_t& word : one) waker.wake_all(1, &word, {});
    for (uint32_t& word : one) waker.wake_all(1, &word, {});
    for (uint32_t& word : two) waker.wake_all(2, &word, {});
    crowds.let_go(100);
    // one[0] again: who slept there after the wake began may not have been woken by it.
    CHECK(crowds.elsewhere(7) ==
          std::vector<uint32_t*>{&one[0], &one[0], &two[0], &one[1], &two[1], &one[2], &one[3]});
}

TEST_CASE("[S17] memory is kept until its crowd is awake, and all are awake when the waker has ended",
          "[local]") {
    Crowds crowds;
    uint32_t words[2] = {};
    auto memory = std::make_shared<int>(1);
    {
        CrowdWaker waker(crowds.wake());
        for (uint32_t& word : words) waker.wake_all(1, &word, memory);
        crowds.elsewhere(1);
        CHECK(memory.use_count() == 3);
        crowds.let_go(2);
    }
    CHECK(memory.use_count() == 1);
    CHECK(crowds.elsewhere(2).size() == 2);
}

TEST_CASE("[S17] real sleepers all wake", "[local]") {
    std::atomic<uint32_t> word{0}, awake{0};
    auto* const raw = reinterpret_cast<uint32_t*>(&word);
    CrowdWaker waker;
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
