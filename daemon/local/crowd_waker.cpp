// See crowd_waker.hpp.
#include "local/crowd_waker.hpp"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "local/futex.hpp"
#include "loop/loop.hpp"

namespace nexar::local {

namespace {

// A wake needs the processor, so they are enough for as many as there are.
constexpr size_t waking_threads_max = 64;
constexpr unsigned last_wakes_seconds = 60;
// By how much it was slow; not above 0: it was not.
Duration excess_of(Duration took, int woken) {
    return took - CrowdWaker::slow - CrowdWaker::slow_each * woken;
}

Time own_time() {
    timespec at{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return Time(std::chrono::seconds(at.tv_sec) + std::chrono::nanoseconds(at.tv_nsec));
}

}  // namespace

struct CrowdWaker::State {
    State(Wake how, Clocks times) : wake(std::move(how)), clocks(std::move(times)) {}

    const Wake wake;
    const Clocks clocks;
    std::mutex mutex;
    std::unordered_set<uint32_t*> queued;  // words that wait for a thread: none waits twice
    // A user with a slow wake lately. Nothing of it is due any more at `suspect_until`.
    struct Suspect {
        Time suspect_until{}, apart_until{};
        Duration excess{0};  // of slow wakes, at `counted_at`: it is forgiven with time
        Time counted_at{};
    };
    std::map<uint64_t, Suspect> suspects;  // by user
    std::atomic<bool> any_suspect{false};  // suspects is not empty

    enum class How { trusted, measured, apart };
    How how(uint64_t user) {
        if (!any_suspect.load(std::memory_order_relaxed)) return How::trusted;
        const Time now = clocks.wall();
        const std::lock_guard lock(mutex);
        const auto row = suspects.find(user);
        if (row == suspects.end()) return How::trusted;
        if (now < row->second.apart_until) return How::apart;
        if (now < row->second.suspect_until) return How::measured;
        suspects.erase(row);
        any_suspect = !suspects.empty();
        return How::trusted;
    }
    void suspect(uint64_t user) { count(user, Duration{0}); }
    void count(uint64_t user, Duration excess) {
        const Time now = clocks.wall();
        const std::lock_guard lock(mutex);
        std::erase_if(suspects, [now](const auto& row) { return row.second.suspect_until <= now; });
        Suspect& row = suspects[user];
        any_suspect = true;
        row.excess = std::max(row.excess - (now - row.counted_at) / forgiven_in, Duration{0}) + excess;
        row.counted_at = now;
        if (row.excess > excess_max) row.apart_until = now + apart;
        row.suspect_until = std::max(now, row.apart_until) + apart;
    }

    // True: it was not in the queue.
    bool enqueue(uint32_t* word) {
        const std::lock_guard lock(mutex);
        return queued.insert(word).second;
    }
    // Before the wake: from then on it may not find all.
    void dequeue(uint32_t* word) {
        const std::lock_guard lock(mutex);
        queued.erase(word);
    }
    void wake_queued(uint64_t user, uint32_t* word) {
        dequeue(word);
        const Time begun = clocks.own();
        const int woken = wake(word, INT_MAX);
        if (const Duration excess = excess_of(clocks.own() - begun, woken); excess > Duration{0})
            count(user, excess);
    }
};

CrowdWaker::Clocks CrowdWaker::system_clocks() {
    return {loop::Loop::now, own_time};
}

Result<std::unique_ptr<CrowdWaker>> CrowdWaker::open(Wake wake, Clocks clocks) {
    NEXAR_TRY(loop::Lanes lanes, loop::Lanes::open(waking_threads_max));
    auto state = std::make_shared<State>(wake ? std::move(wake) : futex_wake, std::move(clocks));
    return std::unique_ptr<CrowdWaker>(new CrowdWaker(std::move(state), std::move(lanes)));
}

CrowdWaker::~CrowdWaker() {
    lanes_.idle_within(last_wakes_seconds);
}

void CrowdWaker::wake_all(uint64_t user, uint32_t* word, std::shared_ptr<const void> memory) {
    const State::How how = state_->how(user);
    if (how != State::How::apart && wake_here(user, word, how == State::How::measured) < here_max) return;
    // One that waits in the queue will wake these, too.
    if (!state_->enqueue(word)) return;
    lanes_.add(user, 1,
               [state = state_, user, word, memory = std::move(memory)] { state->wake_queued(user, word); });
}

// The thread's own clock is a system call, so wakes are timed by the wall clock until one was slow by that.
// But one that waited for the processor is nobody's fault.
int CrowdWaker::wake_here(uint64_t user, uint32_t* word, bool measured) {
    const auto& clock = measured ? state_->clocks.own : state_->clocks.wall;
    const Time begun = clock();
    const int woken = state_->wake(word, here_max);
    const Duration excess = excess_of(clock() - begun, woken);
    if (excess > Duration{0}) measured ? state_->count(user, excess) : state_->suspect(user);
    return woken;
}

}  // namespace nexar::local
