// See crowd_waker.hpp.
#include "local/crowd_waker.hpp"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "local/futex.hpp"
#include "loop/quiet_thread.hpp"

namespace nexar::local {

struct CrowdWaker::State {
    struct Crowd {
        uint32_t* word = nullptr;
        std::shared_ptr<const void> memory;
    };

    std::mutex mutex;
    std::condition_variable work;
    std::map<uint64_t, std::deque<Crowd>> crowds;  // by user; no row is empty
    std::deque<uint64_t> turns;                    // the users that have a row, each once
    std::unordered_set<uint32_t*> queued;          // the words in `crowds`: none is there twice
    bool stopped = false;

    void run(const Wake& wake) {
        std::unique_lock lock(mutex);
        while (true) {
            work.wait(lock, [this] { return stopped || !turns.empty(); });
            if (turns.empty()) return;
            Crowd crowd = next();
            lock.unlock();
            wake(crowd.word, INT_MAX);
            crowd = {};
            lock.lock();
        }
    }
    Crowd next() {
        const uint64_t user = turns.front();
        turns.pop_front();
        const auto row = crowds.find(user);
        Crowd out = std::move(row->second.front());
        row->second.pop_front();
        queued.erase(out.word);
        if (row->second.empty())
            crowds.erase(row);
        else
            turns.push_back(user);
        return out;
    }
};

CrowdWaker::CrowdWaker(Wake wake) : wake_(wake ? std::move(wake) : futex_wake), state_(new State) {}

CrowdWaker::~CrowdWaker() {
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopped = true;
    }
    state_->work.notify_all();
    if (thread_.joinable()) thread_.join();
}

void CrowdWaker::wake_all(uint64_t user, uint32_t* word, std::shared_ptr<const void> memory) {
    if (wake_(word, here_max) < here_max) return;
    if (!thread_.joinable() && !start_thread()) return static_cast<void>(wake_(word, INT_MAX));
    {
        const std::lock_guard lock(state_->mutex);
        // One that waits in the queue will wake these, too.
        if (!state_->queued.insert(word).second) return;
        auto& row = state_->crowds[user];
        if (row.empty()) state_->turns.push_back(user);
        row.push_back({word, std::move(memory)});
    }
    state_->work.notify_one();
}

bool CrowdWaker::start_thread() try {
    thread_ = loop::quiet_thread([this] { state_->run(wake_); });
    return true;
} catch (const std::system_error&) {  // the system has no thread left
    return false;
}

}  // namespace nexar::local
