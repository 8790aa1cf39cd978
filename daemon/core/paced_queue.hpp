// Paced queue: what users bring, and what of it may begin. Each user's begin in the order in which they came,
// a bounded number in a time, and for nobody else's. Dry: its caller passes the time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "core/pace.hpp"
#include "core/time.hpp"

namespace nexar {

// How many of one user may wait, where `waiting` of all users do and no more than `all` should: an eighth of
// them for one who is alone, and less the more there are, so that any number of users who fill their queues
// together leave a quarter, and one place for each.
inline size_t waiting_of_user_max(size_t waiting, size_t all) {
    constexpr size_t part = 5;
    const size_t most = all / 4 * 3;
    return std::max<size_t>(1, (most - std::min(most, waiting)) / part);
}

template <typename One>
class PacedQueue {
  public:
    // As of Pace.
    PacedQueue(Duration interval, unsigned at_once) : pace_(interval, at_once) {}

    // False: as many of the user wait, and it is left as it was; it counts as one that begins.
    bool add(uint64_t user, Time now, One& one, size_t of_user_max) {
        if (waiting(user) >= of_user_max) {
            if (!is_at_pace(user, now)) pace_.take(user, now);
            return false;
        }
        rows_[user].waiting.push_back(std::move(one));
        ++count_;
        return true;
    }

    // Asks of each user those whose turn has come, at most so many, while the answer is yes: it waits no
    // more. After a no they are asked again when 10 ms have passed.
    using Question = std::function<bool(One&)>;
    void ask(Time now, size_t of_user_max, const Question& has_begun) {
        for (auto at = rows_.begin(); at != rows_.end();) {
            auto& [user, row] = *at;
            for (size_t i = 0; i < of_user_max && !row.waiting.empty() && now >= row.again; ++i) {
                if (pace_.next(user, now) > now) break;
                if (!has_begun(row.waiting.front())) {
                    row.again = now + pause;
                    break;
                }
                pace_.take(user, now);
                row.waiting.pop_front();
                --count_;
            }
            at = row.waiting.empty() ? rows_.erase(at) : std::next(at);
        }
    }

    std::vector<One> take_all() {
        std::vector<One> out;
        for (auto& [user, row] : std::exchange(rows_, {}))
            std::ranges::move(row.waiting, std::back_inserter(out));
        count_ = 0;
        return out;
    }

    Time next() const {  // when to ask; never: none waits
        Time out = never;
        for (const auto& [user, row] : rows_)
            out = std::min(out, std::max(row.again, pace_.next(user, Time{})));
        return out;
    }

    // He begins as many as he may.
    bool is_at_pace(uint64_t user, Time now) const { return pace_.next(user, now) > now; }
    size_t waiting(uint64_t user) const {
        const auto row = rows_.find(user);
        return row == rows_.end() ? 0 : row->second.waiting.size();
    }
    size_t waiting() const { return count_; }

  private:
    static constexpr Duration pause{10'000'000};

    struct Row {
        std::deque<One> waiting;  // not empty
        Time again{};             // not to be asked before
    };

    Pace pace_;
    std::map<uint64_t, Row> rows_;  // by user
    size_t count_ = 0;              // in all rows
};

}  // namespace nexar
