// The shared-memory protocol between real threads; run under the thread sanitizer too.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <climits>
#include <thread>
#include <vector>

#include "shm/ring.hpp"
#include "shm/slots.hpp"
#include "shm/words.hpp"
#include "support/control_memory.hpp"

using namespace nexar;
using namespace nexar::shm;
using test::ControlMemory;

namespace {

// Threads that hand each other the processor get few turns beside busy processes: what they do often they do
// until a number of times, or some seconds, are over.
class Enough {
  public:
    explicit Enough(int seconds) : end_(std::chrono::steady_clock::now() + std::chrono::seconds(seconds)) {}
    bool operator()() const { return std::chrono::steady_clock::now() >= end_; }

  private:
    std::chrono::steady_clock::time_point end_;
};

// Sleeps at most so long: a lost wake-up is a late one, and the test goes on to say so.
bool sleep_while(uint32_t& word, uint32_t expected, int limit_seconds) {
    const timespec limit{limit_seconds, 0};
    return ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &limit, nullptr, 0) == 0 || errno != ETIMEDOUT;
}
void wake(uint32_t& word) {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// A ping between two threads by [S5], `rounds` times; how many sleeps ran into their limit.
int late_wakes(int rounds, bool announce, bool forget_every_100th) {
    const bool right = announce && !forget_every_100th;
    const int limit_seconds = right ? 15 : 1;  // a busy machine is not late by so much
    const Enough enough(right ? 5 : 60);
    struct Word {
        uint32_t value = 0, waiters = 0;
    };
    Word there, back;
    std::atomic<int> late{0};
    const auto raise = [&](Word& w, uint32_t value, int round) {
        store_release(w.value, value);
        fence();
        if (forget_every_100th && round % 100 == 99) return;
        if (load_relaxed(w.waiters) != 0) wake(w.value);
    };
    const auto await = [&](Word& w, uint32_t value) {
        if (announce) add(w.waiters, 1u);
        fence();
        for (uint32_t seen; (seen = load_acquire(w.value)) != value && seen != UINT32_MAX;)
            if (!sleep_while(w.value, seen, limit_seconds)) ++late;
        if (announce) std::atomic_ref<uint32_t>(w.waiters).fetch_sub(1);
    };
    std::thread other([&] {
        for (int i = 0; i < rounds && late < 2; ++i) {
            await(there, static_cast<uint32_t>(i + 1));
            if (load_acquire(there.value) == UINT32_MAX) break;
            raise(back, static_cast<uint32_t>(i + 1), i);
        }
        store_release(back.value, UINT32_MAX);
        wake(back.value);
    });
    for (int i = 0; i < rounds && load_acquire(back.value) != UINT32_MAX && !enough(); ++i) {
        raise(there, static_cast<uint32_t>(i + 1), i);
        add(back.waiters, 1u);
        fence();
        for (uint32_t seen; (seen = load_acquire(back.value)) < static_cast<uint32_t>(i + 1);)
            if (!sleep_while(back.value, seen, limit_seconds)) ++late;
        std::atomic_ref<uint32_t>(back.waiters).fetch_sub(1);
    }
    store_release(there.value, UINT32_MAX);
    wake(there.value);
    other.join();
    return late;
}

}  // namespace

TEST_CASE("four threads submit, one takes: every entry arrives once, in each thread's order",
          "[shm][tsan][S1]") {
    ControlMemory memory(16);
    SubmissionConsumer consumer(memory.view());
    constexpr uint32_t each = 20000;
    const Enough enough(5);
    std::atomic<int> at_work{4};
    uint32_t pushed[4] = {};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            SubmissionProducer producer(memory.view());
            for (; pushed[t] < each && !enough(); ++pushed[t])
                while (!producer.try_push({t, pushed[t], NEXAR_ENTRY_SUBMIT})) std::this_thread::yield();
            --at_work;
        });
    uint32_t next[4] = {};
    bool in_order = true;
    while (true) {
        const bool last = at_work == 0;
        const auto entry = consumer.try_pop();
        if (entry)
            in_order = in_order && entry->slot < 4 && entry->generation == next[entry->slot]++;
        else if (last)
            break;
        else
            std::this_thread::yield();
    }
    for (auto& thread : threads) thread.join();

    CHECK(in_order);
    for (int t = 0; t < 4; ++t) CHECK(next[t] == pushed[t]);
    CHECK(!consumer.try_pop());
}

// A producer that read the tail and was then overtaken compares it with a head that is further.
TEST_CASE("a ring with room takes every entry, however many producers overtake each other",
          "[shm][tsan][D12]") {
    ControlMemory memory(256);
    constexpr int in_use_max = 32, pushes = 2'000'000;
    const Enough enough(10);
    std::atomic<int> in_use{0}, left{pushes}, refused{0};
    std::atomic<bool> stop{false};
    std::thread daemon([&] {
        SubmissionConsumer consumer(memory.view());
        while (!stop || in_use > 0) {
            if (consumer.try_pop()) {
                --in_use;
            } else {
                std::this_thread::yield();
            }
        }
    });
    std::vector<std::thread> clients;
    for (int t = 0; t < 4; ++t)
        clients.emplace_back([&] {
            SubmissionProducer producer(memory.view());
            while (left.fetch_sub(1) > 0 && refused == 0 && !enough()) {
                while (in_use.fetch_add(1) >= in_use_max) {
                    --in_use;
                    std::this_thread::yield();
                }
                while (!producer.try_push({1, 1, NEXAR_ENTRY_CANCEL})) ++refused;
            }
        });
    for (auto& client : clients) client.join();
    stop = true;
    daemon.join();
    CHECK(refused == 0);  // of 1024 entries never more than 36 were in use
}

TEST_CASE("a descriptor written before the push is seen whole after the pop", "[shm][tsan]") {
    ControlMemory memory(16);
    auto view = memory.view();
    SubmissionConsumer consumer(view);
    SlotPool pool(16);
    constexpr int rounds = 20000;
    const Enough enough(5);
    std::atomic<bool> over{false};
    std::thread client([&] {
        SubmissionProducer producer(view);
        for (int i = 0; i < rounds && !enough(); ++i) {
            std::optional<SlotPool::Taken> taken;
            while (!(taken = pool.try_take(SlotPool::For::operation))) std::this_thread::yield();
            nexar_shm_descriptor d{};
            d.count = taken->generation * 3;
            d.tag = taken->generation * 7;
            store_words(view.slot(taken->slot).descriptor, d);
            while (!producer.try_push(
                {taken->slot, static_cast<uint32_t>(taken->generation), NEXAR_ENTRY_SUBMIT}))
                std::this_thread::yield();
        }
        over = true;
    });
    bool whole = true;
    while (true) {
        const bool last = over;
        const auto entry = consumer.try_pop();
        if (!entry && last) break;
        if (!entry) {
            std::this_thread::yield();
            continue;
        }
        const auto d = copy_once(view.slot(entry->slot).descriptor);
        whole =
            whole && d.count == uint64_t{entry->generation} * 3 && d.tag == uint64_t{entry->generation} * 7;
        pool.give_back(entry->slot);
    }
    client.join();
    CHECK(whole);
}

TEST_CASE("eight threads take and give back slots: no slot is ever with two", "[shm][tsan]") {
    SlotPool pool(16);
    std::atomic<int> held[16] = {};
    std::atomic<bool> twice{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&] {
            for (int i = 0; i < 20000; ++i) {
                const auto taken = pool.try_take(SlotPool::For::command);
                if (!taken) continue;
                if (held[taken->slot].fetch_add(1) != 0) twice = true;
                held[taken->slot].fetch_sub(1);
                pool.give_back(taken->slot);
            }
        });
    for (auto& t : threads) t.join();
    CHECK(!twice);
    int left = 0;
    while (pool.try_take(SlotPool::For::command)) ++left;
    CHECK(left == 16);
}

TEST_CASE("sleeping and waking by announce, fence, look: no wake-up is lost", "[shm][tsan][S5][S7]") {
    CHECK(late_wakes(20000, true, false) == 0);
}

TEST_CASE("a waiter that does not announce itself, or a waker that forgets, is caught by its lateness",
          "[shm]") {
    CHECK(late_wakes(20000, false, false) > 0);
    CHECK(late_wakes(20000, true, true) > 0);
}
