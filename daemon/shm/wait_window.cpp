#include "shm/wait_window.hpp"

#include <algorithm>

namespace nexar::shm {

Duration WaitWindow::window() const {
    const Duration average(average_ns_.load(std::memory_order_relaxed));
    // Recent waits exceeded the limit, so staying wastes time. A short stay still notices shorter waits.
    if (average > limit_) return limit_ / 16;
    return std::min(limit_, 3 * average + Duration(1000));
}

void WaitWindow::on_wait_ended(Duration took) {
    // Capped, so that one long pause fades within a few waits: 8 * limit falls below limit in 17 steps of
    // 7/8.
    const int64_t capped = std::min(took, 8 * limit_).count();
    const int64_t average = average_ns_.load(std::memory_order_relaxed);
    average_ns_.store(average + (capped - average) / 8, std::memory_order_relaxed);
}

}  // namespace nexar::shm
