#include "sleep.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>

#include "shm/words.hpp"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace nexar::c {

namespace {

constexpr Duration slice{50'000'000};
std::atomic<int> waitv_works{-1};  // -1: not tried

// Own declarations: Debian 12's headers have them, older ones do not.
struct WaitV {
    uint64_t value;
    uint64_t address;
    uint32_t flags;
    uint32_t reserved;
};
constexpr uint32_t futex_32 = 2;

void pause_once() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

timespec spec_of(Duration d) {
    return {static_cast<time_t>(d.count() / 1'000'000'000), static_cast<long>(d.count() % 1'000'000'000)};
}

Woken sleep_by_waitv(const Watched* words, unsigned count, Time until) {
    WaitV list[4];
    for (unsigned i = 0; i < count; ++i)
        list[i] = {words[i].expected, reinterpret_cast<uintptr_t>(words[i].word), futex_32, 0};
    const timespec at = spec_of(until.time_since_epoch());
    const long rc =
        ::syscall(SYS_futex_waitv, list, count, 0, until == never ? nullptr : &at, CLOCK_MONOTONIC);
    if (rc >= 0 || errno == EAGAIN) return Woken::changed_or_woken;
    if (errno == ETIMEDOUT) return Woken::timed_out;
    if (errno == EINTR) return Woken::signal;
    waitv_works.store(0, std::memory_order_relaxed);
    return Woken::changed_or_woken;  // the caller looks, and comes back to the other way
}

Woken sleep_by_slices(const Watched& word, Time until) {
    const Time start = now();
    if (until <= start) return Woken::timed_out;
    const bool last = until - start <= slice;
    const timespec relative = spec_of(last ? until - start : slice);
    const long rc = ::syscall(SYS_futex, word.word, FUTEX_WAIT, word.expected, &relative, nullptr, 0);
    if (rc == 0 || errno == EAGAIN) return Woken::changed_or_woken;
    if (errno == EINTR) return Woken::signal;
    return last ? Woken::timed_out : Woken::changed_or_woken;
}

}  // namespace

bool without_waitv = std::getenv("NEXAR_WITHOUT_WAITV") != nullptr;

Woken sleep_on(const Watched* words, unsigned count, Time until) {
    if (without_waitv || waitv_works.load(std::memory_order_relaxed) == 0)
        return sleep_by_slices(words[0], until);
    return sleep_by_waitv(words, count, until);
}

void wake_all(uint32_t* word) {
    ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Time now() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return Time(Duration(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec));
}

bool stay_while(uint32_t& word, uint32_t expected, Duration at_most, bool yield) {
    if (at_most <= Duration::zero()) return false;
    const Time until = now() + at_most;
    do {
        for (int i = 0; i < (yield ? 1 : 64); ++i) {
            if (shm::load_acquire(word) != expected) return true;
            if (yield)
                ::sched_yield();
            else
                pause_once();
        }
    } while (now() < until);
    return shm::load_acquire(word) != expected;
}

unsigned usable_cores() {
    static const unsigned cores = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1u;
        return std::max(1u, static_cast<unsigned>(CPU_COUNT(&set)));
    }();
    return cores;
}

}  // namespace nexar::c
