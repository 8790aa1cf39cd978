// Time as a value that the caller passes. Dry code reads no clock: the loop and the simulator pass `Time`.
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

// Wall clock. Units: seconds since 1970. Certificates and tokens alone use it; the caller passes it too.
using WallSeconds = int64_t;

inline constexpr int64_t to_ms(Duration d) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

}  // namespace nexar
