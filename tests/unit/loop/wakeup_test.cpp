// Wakeup between two real threads: a notification is never lost, whenever it comes. A lost one shows as a
// poll that nobody ends.
#include "loop/wakeup.hpp"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdint>
#include <thread>

#include "core/random.hpp"
#include "core/spsc_queue.hpp"

using namespace nexar;
using loop::Wakeup;

namespace {

constexpr int patience_ms = 20000;

bool readable(int fd, int timeout_ms) {
    pollfd p{fd, POLLIN, 0};
    return poll(&p, 1, timeout_ms) == 1;
}

// One sleep as the loop and the shards do it. False: nobody woke it.
bool sleep_until_pushed(Wakeup& wakeup, SpscQueue<uint64_t>& queue) {
    wakeup.announce_sleep();
    bool woken = true;
    if (queue.empty()) {
        woken = readable(wakeup.fd(), patience_ms);
        if (woken) wakeup.drain();
    }
    wakeup.awake();
    return woken;
}

}  // namespace

TEST_CASE("who does not sleep costs no system call and leaves no trace", "[loop]") {
    Wakeup w;
    w.notify();
    CHECK_FALSE(readable(w.fd(), 0));
    w.announce_sleep();
    w.awake();
    w.notify();
    CHECK_FALSE(readable(w.fd(), 0));
}

TEST_CASE("who announced its sleep is woken, once per sleep", "[loop]") {
    Wakeup w;
    w.announce_sleep();
    w.notify();
    w.notify();
    REQUIRE(readable(w.fd(), 0));
    w.drain();
    CHECK_FALSE(readable(w.fd(), 0));
    w.notify();  // the announcement was used up
    CHECK_FALSE(readable(w.fd(), 0));
    w.announce_sleep();
    w.notify();
    CHECK(readable(w.fd(), 0));
    w.drain();
    w.drain();  // an empty one does not block
}

// Each notification but the last is about something earlier: it wakes, and what is waited for is not done.
TEST_CASE("a wait whose announcement a late notifier used up is announced again [N20]", "[loop][threads]") {
    Wakeup w;
    constexpr int rounds = 100;
    std::atomic<bool> done{false};
    int woken = 0;
    std::thread notifier([&] {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
        while (woken < rounds && std::chrono::steady_clock::now() < end)
            w.notify() ? static_cast<void>(++woken) : static_cast<void>(sched_yield());
        done = true;
        const uint64_t one = 1;  // also where it is not announced, so that the test ends
        static_cast<void>(::write(w.fd(), &one, sizeof one) == sizeof one);
    });
    w.wait_until([&] { return done.load(); });
    notifier.join();
    CHECK(woken == rounds);
}

TEST_CASE("no wake-up is lost between two threads that answer each other", "[loop][threads]") {
    constexpr uint64_t rounds = 20000;
    Wakeup there, here;
    SpscQueue<uint64_t> to(4), back(4);
    std::thread other([&] {
        for (uint64_t n = 0; n < rounds;) {
            auto got = to.pop();
            if (!got) {
                if (!sleep_until_pushed(there, to)) return;
                continue;
            }
            ++n;
            back.push(*got);
            here.notify();
        }
    });
    Random random(42);
    bool lost = false, wrong = false;
    for (uint64_t n = 0; n < rounds && !lost; ++n) {
        uint64_t value = n;
        to.push(value);
        there.notify();
        for (uint64_t spin = random.below(200); spin > 0; --spin)
            std::atomic_signal_fence(std::memory_order_seq_cst);
        if (random.one_in(8)) sched_yield();
        std::optional<uint64_t> got;
        while (!(got = back.pop()) && !lost) lost = !sleep_until_pushed(here, back);
        wrong = wrong || (got && *got != n);
    }
    CHECK_FALSE(lost);
    CHECK_FALSE(wrong);
    other.join();
}

TEST_CASE(
    "[N23] a wake-up for which no descriptor is left is an error that names the limit, and no sleep hangs") {
    rlimit before{}, few{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    few = {3, before.rlim_max};  // standard input, output and error
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    Wakeup none;
    const Result<void> made = none.made();
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == Errc::io);
    CHECK(made.error().text.contains("Too many open files"));
    CHECK(made.error().text.contains("the limit on descriptors is"));
    int looks = 0;
    none.wait_until([&] { return ++looks > 5; });
    CHECK_FALSE(none.notify());
    CHECK(Wakeup().made());
}
