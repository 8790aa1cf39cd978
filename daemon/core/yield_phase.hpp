// YieldPhase: how long a thread that has nothing to do yields before it sleeps: for a window after its last
// work, if that finds work now and then. On a slow link it does not: each packet comes later than that, and a
// phase before each sleep would take half of a processor. So after some phases that found nothing only one
// wait in many has one, until one finds work. (Whether a yield pays among other threads: Yields.) Dry.
//
// Thread: its owner's.
#pragma once

#include <cstdint>

#include "core/time.hpp"

namespace nexar {

class YieldPhase {
  public:
    static constexpr unsigned misses_max = 8;
    static constexpr unsigned tried_one_in = 31;  // odd: waits that come in twos or fours all have their turn

    YieldPhase(Duration window, Time now) : window_(window), worked_(now) {}

    void worked(Time now) {
        if (state_ == State::lasts) misses_ = 0;
        state_ = State::none;
        worked_ = now;
    }
    // Nothing was to do. True: to yield, and look again.
    bool lasts(Time now) {
        if (state_ == State::none && now < worked_ + window_)
            state_ = misses_ < misses_max || ++skipped_ % tried_one_in == 0 ? State::lasts : State::over;
        if (state_ == State::lasts && now >= worked_ + window_) {
            state_ = State::over;
            if (misses_ < misses_max) ++misses_;
        }
        return state_ == State::lasts;
    }
    // A wake-up that brings no work is followed by a sleep at once.
    void slept() { state_ = State::over; }

  private:
    enum class State : uint8_t { none, lasts, over };  // since it worked last

    const Duration window_;
    Time worked_;
    State state_ = State::none;
    unsigned misses_ = 0;  // phases that found nothing, one after another
    unsigned skipped_ = 0;
};

}  // namespace nexar
