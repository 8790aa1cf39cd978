// See crowd_waker.hpp.
#include "local/crowd_waker.hpp"

#include <time.h>

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
// The thread's own clock is asked once in such a time, so that many quick wakes do not cost many calls.
constexpr Duration sample_age_max = CrowdWaker::slow / 2;

bool is_slow(Duration took, int woken) {
    return took > CrowdWaker::slow + CrowdWaker::slow_each * woken;
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
    std::map<uint64_t, Time> apart_until;  // by user
    std::atomic<bool> any_apart{false};    // apart_until is not empty

    void keep_apart(uint64_t user) {
        const Time now = clocks.wall();
        const std::lock_guard lock(mutex);
        std::erase_if(apart_until, [now](const auto& row) { return row.second <= now; });
        apart_until[user] = now + apart;
        any_apart = true;
    }
    bool is_apart(uint64_t user) {
        if (!any_apart.load(std::memory_order_relaxed)) return false;
        const Time now = clocks.wall();
        const std::lock_guard lock(mutex);
        const auto row = apart_until.find(user);
        if (row == apart_until.end()) return false;
        if (now < row->second) return true;
        apart_until.erase(row);
        any_apart = !apart_until.empty();
        return false;
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
        if (is_slow(clocks.own() - begun, woken)) keep_apart(user);
    }
};

CrowdWaker::Clocks CrowdWaker::system_clocks() {
    return {loop::Loop::now, own_time};
}

CrowdWaker::CrowdWaker(Wake wake, Clocks clocks)
    : state_(std::make_shared<State>(wake ? std::move(wake) : futex_wake, std::move(clocks))),
      lanes_(waking_threads_max) {}

CrowdWaker::~CrowdWaker() {
    lanes_.idle_within(last_wakes_seconds);
}

void CrowdWaker::wake_all(uint64_t user, uint32_t* word, std::shared_ptr<const void> memory) {
    if (!state_->is_apart(user) && wake_here(user, word) < here_max) return;
    // One that waits in the queue will wake these, too.
    if (!state_->enqueue(word)) return;
    lanes_.add(user, 1,
               [state = state_, user, word, memory = std::move(memory)] { state->wake_queued(user, word); });
}

// What the thread had of the processor since the sample is the wake's, but for what it may have had before
// the wake. A wake that waited for the processor is nobody's fault.
int CrowdWaker::wake_here(uint64_t user, uint32_t* word) {
    const Clocks& clocks = state_->clocks;
    const Time begun = clocks.wall();
    if (begun - sampled_wall_ > sample_age_max) {
        sampled_own_ = clocks.own();
        sampled_wall_ = begun;
    }
    const int woken = state_->wake(word, here_max);
    if (is_slow(clocks.wall() - begun, woken) &&
        is_slow(clocks.own() - sampled_own_ - (begun - sampled_wall_), woken))
        state_->keep_apart(user);
    return woken;
}

}  // namespace nexar::local
