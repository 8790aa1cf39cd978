// Timers: deadlines in order of time; the caller passes the time. Equal deadlines fire in the order in which
// they were first armed, so that a simulation is deterministic.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>

#include "core/time.hpp"

namespace nexar::engine {

// A client may ask for 292 years, which would overflow the clock.
constexpr Time deadline_after(Time now, Duration timeout) {
    return timeout < never - now ? now + timeout : never;
}

class Timers;

// One deadline. The destructor disarms it.
class Alarm {
  public:
    explicit Alarm(Timers& timers);
    Alarm(const Alarm&) = delete;
    Alarm& operator=(const Alarm&) = delete;
    virtual void on_time() = 0;

    void wake_at(Time at);  // replaces the earlier deadline; never: disarms it

  protected:
    ~Alarm() { wake_at(never); }

  private:
    friend class Timers;
    Timers& timers_;
    uint64_t number_;
    Time at_ = never;
};

class Timers {
  public:
    Time next() const { return queue_.empty() ? never : std::get<0>(*queue_.begin()); }
    // Fires all that are due at `now`. Each is disarmed first and may arm itself again.
    void run(Time now) {
        while (next() <= now) {
            Alarm* alarm = std::get<2>(*queue_.begin());
            queue_.erase(queue_.begin());
            alarm->at_ = never;
            alarm->on_time();
        }
    }

  private:
    friend class Alarm;
    std::set<std::tuple<Time, uint64_t, Alarm*>> queue_;
    uint64_t made_ = 0;
};

inline Alarm::Alarm(Timers& timers) : timers_(timers), number_(timers.made_++) {}

inline void Alarm::wake_at(Time at) {
    if (at == at_) return;
    if (at_ != never) timers_.queue_.erase({at_, number_, this});
    at_ = at;
    if (at_ != never) timers_.queue_.emplace(at_, number_, this);
}

}  // namespace nexar::engine
