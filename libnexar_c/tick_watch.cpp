// See tick_watch.hpp.
#include "tick_watch.hpp"

#include <algorithm>

#include "shm_layout.h"

namespace nexar::c {

namespace {
constexpr Duration grace = std::chrono::milliseconds(2 * NEXAR_SHM_TICK_MS);
}

Time TickWatch::check_at(Time tick) const {
    if (limit_ >= Duration::max() / 4) return never;
    const Duration since(stale_since_.load(std::memory_order_relaxed));
    return since != Duration::zero() ? Time(since + grace) : tick + limit_;
}

bool TickWatch::expired_at(Time tick, Time now) {
    const Time since(Duration(stale_since_.load(std::memory_order_relaxed)));
    if (now < tick + limit_) {
        stale_since_.store(0, std::memory_order_relaxed);
        return false;
    }
    // The tick has moved since it was found stale, so this is another halt, with its own grace.
    if (since == Time{} || tick != stale_tick_) {
        stale_tick_ = tick;
        stale_since_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
        return false;
    }
    return now >= since + grace;
}

}  // namespace nexar::c
