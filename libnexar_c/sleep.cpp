// See sleep.hpp.
#include "sleep.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>

#include "shm/words.hpp"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace nexar::c {

namespace {

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

}  // namespace

timespec spec_of(Duration d) {
    return {static_cast<time_t>(d.count() / 1'000'000'000), static_cast<long>(d.count() % 1'000'000'000)};
}

bool waitv_works() {
    if (std::getenv("NEXAR_WITHOUT_WAITV") != nullptr) return false;  // tests
    // A call without words is EINVAL where the system call exists.
    return ::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, CLOCK_MONOTONIC) < 0 && errno == EINVAL;
}

Woken sleep_on(const Watched* words, unsigned count, Time until) {
    WaitV list[4];
    for (unsigned i = 0; i < count; ++i)
        list[i] = {words[i].expected, reinterpret_cast<uintptr_t>(words[i].word), futex_32, 0};
    const timespec at = spec_of(until.time_since_epoch());
    const long rc =
        ::syscall(SYS_futex_waitv, list, count, 0, until == never ? nullptr : &at, CLOCK_MONOTONIC);
    if (rc >= 0 || errno == EAGAIN) return Woken::changed_or_woken;
    if (errno == ETIMEDOUT) return Woken::timed_out;
    if (errno == EINTR) return Woken::signal;
    ::usleep(1000);  // ENOMEM: poll slowly instead
    return Woken::changed_or_woken;
}

Woken sleep_on_one(const Watched& word, Time until) {
    const Duration left = until == never ? Duration::zero() : until - now();
    if (left < Duration::zero()) return Woken::timed_out;
    const timespec relative = spec_of(left);
    const long rc = ::syscall(SYS_futex, word.word, FUTEX_WAIT, word.expected,
                              until == never ? nullptr : &relative, nullptr, 0);
    if (rc == 0 || errno == EAGAIN) return Woken::changed_or_woken;
    if (errno == ETIMEDOUT) return Woken::timed_out;
    return errno == EINTR ? Woken::signal : Woken::changed_or_woken;
}

void wake_all(uint32_t* word) {
    ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

Time now() {
    timespec t{};
    ::clock_gettime(CLOCK_MONOTONIC, &t);
    return Time(Duration(int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec));
}

bool spin_while(uint32_t& word, uint32_t expected, Duration at_most) {
    if (at_most <= Duration::zero()) return false;
    const Time until = now() + at_most;
    do {
        for (int i = 0; i < 64; ++i) {
            if (shm::load_acquire(word) != expected) return true;
            pause_once();
        }
    } while (now() < until);
    return shm::load_acquire(word) != expected;
}

bool yield_while(uint32_t& word, uint32_t expected, Duration at_most, Yields& yields) {
    Time at = now();
    const Time until = at + at_most;
    while (at < until && yields.pays(at)) {
        if (shm::load_acquire(word) != expected) return true;
        const Time began = at;
        ::sched_yield();
        at = now();
        if (!yields.ended(began, at)) break;
    }
    return shm::load_acquire(word) != expected;
}

}  // namespace nexar::c
