// Time as a value that is handed in. Dry code never reads a clock; the wet loop and the simulator give it
// `Time`.
#pragma once

#include <chrono>

namespace nexar {

using Duration = std::chrono::nanoseconds;

// The node's monotonic clock. It has no now(): only the outside world does.
struct MonotonicClock {
    using rep = Duration::rep;
    using period = Duration::period;
    using duration = Duration;
    using time_point = std::chrono::time_point<MonotonicClock, Duration>;
    static constexpr bool is_steady = true;
};
using Time = MonotonicClock::time_point;

constexpr Time never = Time::max();

// Wall clock, seconds since 1970: only certificates and tokens use it, and it too is handed in.
using WallSeconds = int64_t;

inline constexpr int64_t to_ms(Duration d) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

}  // namespace nexar
