// See releaser.hpp.
#include "loop/releaser.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>

#include "loop/quiet_thread.hpp"

namespace nexar::loop {

namespace {

// munmap() holds the address space's lock, which every mmap() of the daemon waits for: about 30 ms a piece.
constexpr size_t piece_bytes = size_t{64} << 20;
constexpr std::chrono::seconds thread_idle{1};

void give_back(Released what) {
    if (what.before_release) what.before_release();
    for (MutableBytes rest = what.mapping; !rest.empty();) {
        const MutableBytes piece = rest.first(std::min(rest.size(), piece_bytes));
        // A part of a huge page of 1 GiB is refused.
        if (::munmap(piece.data(), piece.size()) != 0) {
            ::munmap(rest.data(), rest.size());
            break;
        }
        rest = rest.subspan(piece.size());
    }
    what.descriptors.clear();
}

}  // namespace

struct Releaser::State {
    struct Lane {
        std::deque<Released> waiting;
        size_t descriptors = 0;  // of those waiting, and of the one that a thread has
        bool taken = false;      // a thread has one of this lane
    };

    explicit State(size_t most) : threads_max(most) {}

    const size_t threads_max;
    mutable std::mutex mutex;
    std::condition_variable work;          // a lane has become ready, or stopped
    mutable std::condition_variable done;  // a lane has gone
    std::map<uint64_t, Lane> lanes;        // that have something
    std::deque<uint64_t> ready;            // lanes that have something waiting and are not taken, in turn
    size_t threads = 0, idle = 0;          // of threads: those that wait for work
    size_t descriptors = 0;                // of all lanes
    bool stopped = false;

    // Requires: the mutex is held. Waits while nothing is ready; empty: this thread ends.
    std::optional<std::pair<uint64_t, Released>> next(std::unique_lock<std::mutex>& lock) {
        ++idle;
        work.wait_for(lock, thread_idle, [this] { return stopped || !ready.empty(); });
        --idle;
        if (ready.empty()) return {};
        const uint64_t number = ready.front();
        ready.pop_front();
        Lane& lane = lanes.at(number);
        lane.taken = true;
        std::pair<uint64_t, Released> out{number, std::move(lane.waiting.front())};
        lane.waiting.pop_front();
        return out;
    }

    // Requires: the mutex is held.
    void end(uint64_t number, size_t closed) {
        Lane& lane = lanes.at(number);
        lane.taken = false;
        lane.descriptors -= closed;
        descriptors -= closed;
        if (!lane.waiting.empty())
            ready.push_back(number);
        else
            lanes.erase(number);
        if (lanes.empty()) done.notify_all();
    }
};

Releaser::Releaser(size_t threads_max) : state_(std::make_shared<State>(threads_max)) {}

Releaser::~Releaser() {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
    state_->work.notify_all();
}

void Releaser::release(uint64_t number, Released what) {
    std::unique_lock lock(state_->mutex);
    State::Lane& lane = state_->lanes[number];
    lane.descriptors += what.descriptors.size();
    state_->descriptors += what.descriptors.size();
    lane.waiting.push_back(std::move(what));
    if (!lane.taken && lane.waiting.size() == 1) state_->ready.push_back(number);
    const bool starts = state_->idle < state_->ready.size() && state_->threads < state_->threads_max;
    if (starts) ++state_->threads;
    lock.unlock();
    state_->work.notify_one();
    if (starts) start_thread();
}

// Where the system has no thread left, those that run go on; without one, the next release() tries again.
void Releaser::start_thread() try {
    quiet_thread([state = state_] { run(state); }).detach();
} catch (const std::system_error&) {
    const std::lock_guard lock(state_->mutex);
    --state_->threads;
}

void Releaser::release(uint64_t number, Fd descriptor) {
    Released what;
    what.descriptors.push_back(std::move(descriptor));
    release(number, std::move(what));
}

void Releaser::run(const std::shared_ptr<State>& state) {
    std::unique_lock lock(state->mutex);
    while (auto one = state->next(lock)) {
        auto& [number, what] = *one;
        const size_t closed = what.descriptors.size();
        lock.unlock();
        give_back(std::move(what));
        lock.lock();
        state->end(number, closed);
    }
    --state->threads;
}

size_t Releaser::descriptors(uint64_t number) const {
    const std::lock_guard lock(state_->mutex);
    const auto at = state_->lanes.find(number);
    return at == state_->lanes.end() ? 0 : at->second.descriptors;
}

size_t Releaser::descriptors() const {
    const std::lock_guard lock(state_->mutex);
    return state_->descriptors;
}

bool Releaser::idle_within(unsigned seconds) const {
    std::unique_lock lock(state_->mutex);
    return state_->done.wait_for(lock, std::chrono::seconds(seconds),
                                 [this] { return state_->lanes.empty(); });
}

}  // namespace nexar::loop
