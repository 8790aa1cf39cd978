// See lanes.hpp.
#include "loop/lanes.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "loop/quiet_thread.hpp"
#include "loop/summons.hpp"

namespace nexar::loop {

namespace {

constexpr int thread_idle_ms = 1000;

struct Item {
    size_t weight = 0;
    Lanes::Work work;
};

}  // namespace

struct Lanes::State {
    struct Lane {
        std::deque<Item> waiting;
        size_t weight = 0;   // of those waiting, and of the one that a thread has
        bool taken = false;  // a thread has one of this lane
    };

    State(size_t most, Summons summons) : threads_max(most), work(std::move(summons)) {}

    const size_t threads_max;
    mutable std::mutex mutex;
    Summons work;                          // a lane has become ready, or stopped
    mutable std::condition_variable done;  // a lane has gone
    std::map<uint64_t, Lane> lanes;        // that have something
    std::deque<uint64_t> ready;            // lanes that have something waiting and are not taken, in turn
    size_t threads = 0, idle = 0;          // of threads: those that wait for work
    size_t weight = 0;                     // of all lanes
    bool stopped = false;

    // Requires, of all that follow: the mutex is held.
    bool has_news() const { return stopped || !ready.empty(); }
    bool calls_another() const { return has_news() && idle > 0; }

    // Until there is news, or this thread has had nothing to do for so long that it ends.
    void wait(std::unique_lock<std::mutex>& lock, bool stays) {
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(thread_idle_ms);
        ++idle;
        while (!has_news() && (stays || std::chrono::steady_clock::now() < end)) {
            lock.unlock();
            work.wait(stays ? -1 : thread_idle_ms);
            lock.lock();
        }
        --idle;
    }

    // Waits while nothing is ready; empty: this thread ends.
    std::optional<std::pair<uint64_t, Item>> next(std::unique_lock<std::mutex>& lock, bool stays) {
        wait(lock, stays);
        if (ready.empty()) return {};
        const uint64_t number = ready.front();
        ready.pop_front();
        Lane& lane = lanes.at(number);
        lane.taken = true;
        std::pair<uint64_t, Item> out{number, std::move(lane.waiting.front())};
        lane.waiting.pop_front();
        return out;
    }

    void end(uint64_t number, size_t ended) {
        Lane& lane = lanes.at(number);
        lane.taken = false;
        lane.weight -= ended;
        weight -= ended;
        if (!lane.waiting.empty())
            ready.push_back(number);
        else
            lanes.erase(number);
        if (lanes.empty()) done.notify_all();
    }
};

Result<Lanes> Lanes::open(size_t threads_max) {
    NEXAR_TRY(Summons summons, Summons::open());
    auto state = std::make_shared<State>(threads_max, std::move(summons));
    ++state->threads;
    if (!start_thread(state, true))
        return fail(Errc::io,
                    "cannot start a thread; raise the limits on them (TasksMax of the unit, ulimit -u)");
    return Lanes(std::move(state));
}

Lanes::~Lanes() {
    if (!state_) return;
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopped = true;
    }
    state_->work.call();
}

void Lanes::add(uint64_t number, size_t weight, Work work) {
    std::unique_lock lock(state_->mutex);
    State::Lane& lane = state_->lanes[number];
    lane.weight += weight;
    state_->weight += weight;
    lane.waiting.push_back({weight, std::move(work)});
    if (!lane.taken && lane.waiting.size() == 1) state_->ready.push_back(number);
    const bool starts = state_->idle < state_->ready.size() && state_->threads < state_->threads_max;
    if (starts) ++state_->threads;
    const bool calls = state_->calls_another();
    lock.unlock();
    if (calls) state_->work.call();
    if (starts) start_thread(state_, false);
}

// Where the system has no thread left, those that run go on: at least the one that stays.
bool Lanes::start_thread(const std::shared_ptr<State>& state, bool stays) try {
    quiet_thread([state, stays] { run(state, stays); }).detach();
    return true;
} catch (const std::system_error&) {
    const std::lock_guard lock(state->mutex);
    --state->threads;
    return false;
}

void Lanes::run(const std::shared_ptr<State>& state, bool stays) {
    std::unique_lock lock(state->mutex);
    while (auto one = state->next(lock, stays)) {
        auto& [number, item] = *one;
        const bool calls = state->calls_another();
        lock.unlock();
        if (calls) state->work.call();
        item.work();
        item.work = nullptr;
        lock.lock();
        state->end(number, item.weight);
    }
    --state->threads;
    if (state->calls_another()) state->work.call();
}

size_t Lanes::weight(uint64_t number) const {
    const std::lock_guard lock(state_->mutex);
    const auto at = state_->lanes.find(number);
    return at == state_->lanes.end() ? 0 : at->second.weight;
}

size_t Lanes::weight() const {
    const std::lock_guard lock(state_->mutex);
    return state_->weight;
}

bool Lanes::idle_within(unsigned seconds) const {
    std::unique_lock lock(state_->mutex);
    return state_->done.wait_for(lock, std::chrono::seconds(seconds),
                                 [this] { return state_->lanes.empty(); });
}

}  // namespace nexar::loop
