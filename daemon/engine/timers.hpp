// Timers: deadlines in order of time; the caller passes the time. Those that fall together are handled in
// turns of the loop, users in turns, and each one's in order (docs/protocol/tenants.md [N16]). Equal
// deadlines of a user fire in the order in which their alarms were made, so that a simulation is
// deterministic.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "core/recycled.hpp"
#include "core/time.hpp"

namespace nexar::engine {

// A client may ask for 292 years, which would overflow the clock.
constexpr Time deadline_after(Time now, Duration timeout) {
    return timeout < never - now ? now + timeout : never;
}

class Alarm;

// Requires: exists longer than its alarms.
class Timers {
  public:
    // Of all users together in a turn: so little that others hardly wait for it.
    static constexpr size_t at_once_max = 64;
    static constexpr Duration time_max{50'000};  // after which no further one fires

    Time next() {
        settle();
        return order_.empty() ? never : std::get<Time>(*order_.begin());
    }
    // One turn: fires some of those that are due at `now`. Each is disarmed first and may arm itself again.
    // What is left is due at once: next() says so. `clock()`: the time, as it passes.
    template <class Clock>
    void run(Time now, const Clock& clock) {
        if (next() > now) return;
        const Time until = clock() + time_max;
        for (size_t fired = 0; fired < at_once_max && next() <= now; ++fired) {
            fire_next(now);
            if (clock() >= until) return;
        }
    }

  private:
    friend class Alarm;
    using InQueue = std::tuple<Time, uint64_t, Alarm*>;
    using Queue = std::set<InQueue, std::less<>, Recycled<InQueue>>;
    struct Row;
    using InOrder = std::tuple<Time, uint64_t, uint64_t, Row*>;
    using Order = std::set<InOrder, std::less<>, Recycled<InOrder>>;
    // A user's alarms. As long as it has any, armed or not: to arm one then looks for nothing.
    struct Row {
        uint64_t user = 0;
        size_t alarms = 0;
        bool is_unsettled = false;  // order_ may still have its earlier place; it is in unsettled_
        Queue queue{};
        Time served_at{};  // when one fired last: it is behind all that have been due since before
        uint64_t turn = 0;
        std::tuple<Time, uint64_t, uint64_t, Row*> place{never, 0, 0,
                                                         nullptr};  // in order_; never: not there
        Order::node_type spare{};                                   // while it is not there
    };

    Row& join(uint64_t user) {
        Row& row = rows_.try_emplace(user).first->second;
        row.user = user;
        ++row.alarms;
        return row;
    }
    void leave(Row& row) {
        if (--row.alarms != 0) return;
        put_in_order(row);
        if (row.is_unsettled) std::erase(unsettled_, &row);
        rows_.erase(uint64_t(row.user));
    }
    // After each change of its first alarm, or of its turn. A turn of the loop arms and disarms many alarms
    // of a user, and only the last of these changes counts: the row is put in order when next() is asked.
    void unsettle(Row& row) {
        if (std::exchange(row.is_unsettled, true)) return;
        unsettled_.push_back(&row);
    }
    void settle() {
        for (Row* row : unsettled_) {
            row->is_unsettled = false;
            put_in_order(*row);
        }
        unsettled_.clear();
    }
    void put_in_order(Row& row) {
        const Time due =
            row.queue.empty() ? never : std::max(std::get<Time>(*row.queue.begin()), row.served_at);
        const std::tuple place{due, row.turn, row.user, &row};
        if (place == row.place) return;
        if (std::get<Time>(row.place) != never) row.spare = order_.extract(row.place);
        row.place = place;
        if (due == never) return;
        if (row.spare.empty()) return static_cast<void>(order_.insert(place));
        row.spare.value() = place;
        order_.insert(std::move(row.spare));
    }
    void fire_next(Time now);

    std::map<uint64_t, Row, std::less<>, Recycled<std::pair<const uint64_t, Row>>> rows_;
    Order order_;  // by time, then by turn: of rows with an armed alarm
    std::vector<Row*> unsettled_;
    uint64_t turns_ = 0;
    uint64_t made_ = 0;
};

// One deadline. The destructor disarms it.
class Alarm {
  public:
    Alarm(Timers& timers, uint64_t user)
        : timers_(timers), row_(timers.join(user)), number_(timers.made_++) {}
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;
    virtual void on_time() = 0;

    // Replaces the earlier deadline; never: disarms it.
    void wake_at(Time at) {
        if (at == at_) return;
        if (at_ != never) row_.queue.erase(place_);
        at_ = at;
        // Most are the latest of their user, since most time-outs are the same.
        if (at_ != never) place_ = row_.queue.emplace_hint(row_.queue.end(), at_, number_, this);
        timers_.unsettle(row_);
    }

  protected:
    ~Alarm() {
        wake_at(never);
        timers_.leave(row_);
    }

  private:
    friend class Timers;
    Timers& timers_;
    Timers::Row& row_;
    uint64_t number_;
    Time at_ = never;
    Timers::Queue::iterator place_;  // while it is armed
};

inline void Timers::fire_next(Time now) {
    Row& row = *std::get<Row*>(*order_.begin());
    Alarm* const alarm = std::get<Alarm*>(*row.queue.begin());
    row.served_at = now;
    row.turn = ++turns_;
    alarm->wake_at(never);
    alarm->on_time();  // may end any alarm, and with a user's last one its row
}

}  // namespace nexar::engine
