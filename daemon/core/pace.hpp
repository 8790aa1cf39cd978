// Pace: how many requests each user may make in a time. A request that comes earlier waits; none is refused.
// Dry: its caller passes the time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "core/time.hpp"

namespace nexar {

class Pace {
  public:
    // One request each `interval`, and up to `burst` at once after a pause. An interval of 0: no limit.
    Pace(Duration interval, unsigned burst) : interval_(interval), burst_(burst) {}

    // When the user's next request may begin: `now`, or later.
    Time next(uint64_t user, Time now) const;
    // Counts one that begins now.
    void take(uint64_t user, Time now);
    size_t users() const { return used_until_.size(); }

  private:
    Duration interval_;
    unsigned burst_;
    // By user: when what has been taken is used up at the steady rate. Empty for a user who has paused.
    std::map<uint64_t, Time> used_until_;
};

}  // namespace nexar
