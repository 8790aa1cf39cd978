// Turns: tasks whose work is long do it in portions, and wait here for the next turn of the loop between
// them. One portion of all of them is done in a turn; users in turns, and each one's tasks in order. Dry.
//
// Thread: the control loop's.
#pragma once

#include <cstdint>
#include <list>
#include <map>

#include "core/recycled.hpp"
#include "task/op.hpp"

namespace nexar::engine {

class Turns {
  public:
    class Waiter;
    using Row = std::list<Waiter*, Recycled<Waiter*>>;

    // A task that waits; a part of its frame.
    class Waiter {
      public:
        Waiter(Turns& turns, uint64_t user) : turns_(&turns), user_(user) {
            Row& row = turns.waiting_[user];
            at_ = row.insert(row.end(), this);
        }
        ~Waiter() {
            if (!op.done()) turns_->leave(*this);
        }
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;

        Op op;

      private:
        friend class Turns;
        Turns* turns_;
        const uint64_t user_;
        Row::iterator at_;  // in the row of its user
    };

    bool waiting() const { return !waiting_.empty(); }
    // A turn has begun: one of those that wait goes on.
    void next() {
        if (waiting_.empty()) return;
        auto row = waiting_.upper_bound(served_);
        if (row == waiting_.end()) row = waiting_.begin();
        served_ = row->first;
        Waiter& waiter = *row->second.front();
        leave(waiter);
        waiter.op.finish();
    }

  private:
    void leave(Waiter& waiter) {
        const auto row = waiting_.find(waiter.user_);
        row->second.erase(waiter.at_);
        if (row->second.empty()) waiting_.erase(row);
    }

    std::map<uint64_t, Row, std::less<>, Recycled<std::pair<const uint64_t, Row>>>
        waiting_;          // by user; no list is empty
    uint64_t served_ = 0;  // the user whose turn it was
};

}  // namespace nexar::engine
