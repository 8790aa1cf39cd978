// Virtual time: things that will happen, in order; equal times in the order in which they were asked for. A
// run is its seed.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "core/random.hpp"
#include "core/time.hpp"

namespace nexar::sim {

using namespace std::chrono_literals;

class Clock {
  public:
    explicit Clock(uint64_t seed) : random(seed) {}

    Random random;
    Time now() const { return now_; }

    void at(Time when, std::function<void()> act) {
        queue_.push({std::max(when, now_), next_++, std::move(act)});
    }
    void after(Duration delay, std::function<void()> act) { at(now_ + delay, std::move(act)); }
    // Uniform in [0, most].
    Duration some(Duration most) {
        return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(most.count()) + 1)));
    }

    bool step() {
        if (queue_.empty()) return false;
        Entry entry = std::move(const_cast<Entry&>(queue_.top()));
        queue_.pop();
        now_ = entry.when;
        ++steps;
        entry.act();
        return true;
    }
    Time next() const { return queue_.empty() ? never : queue_.top().when; }
    uint64_t steps = 0;

  private:
    struct Entry {
        Time when;
        uint64_t number;
        std::function<void()> act;
        bool operator<(const Entry& other) const {  // std::priority_queue has the largest on top
            return std::tie(other.when, other.number) < std::tie(when, number);
        }
    };
    std::priority_queue<Entry> queue_;
    Time now_{};
    uint64_t next_ = 0;
};

}  // namespace nexar::sim
