#include "workers/shared_queue.hpp"

#include <utility>

namespace nexar::workers {

void SharedQueue::push(std::shared_ptr<Job> job) {
    auto* const arrived = new Arrived{std::move(job), arrived_.load(std::memory_order_relaxed)};
    while (!arrived_.compare_exchange_weak(arrived->next, arrived, std::memory_order_release,
                                           std::memory_order_relaxed)) {
    }
}

// In the order in which they came. A worker that looks meanwhile whether it may sleep finds something.
void SharedQueue::sort_in() {
    if (arrived_.load(std::memory_order_relaxed) == nullptr) return;
    any_waits_.store(true, std::memory_order_relaxed);
    Arrived* oldest = nullptr;
    for (Arrived* at = arrived_.exchange(nullptr, std::memory_order_acq_rel); at != nullptr;) {
        Arrived* const next = std::exchange(at->next, oldest);
        oldest = std::exchange(at, next);
    }
    while (oldest != nullptr) {
        const std::unique_ptr<Arrived> first(std::exchange(oldest, oldest->next));
        waiting_.push(std::move(first->job));
    }
}

std::optional<Piece> SharedQueue::take() {
    if (!any()) return std::nullopt;
    const std::lock_guard lock(lock_);
    sort_in();
    std::optional<Piece> piece;
    if (!waiting_.empty()) piece = waiting_.take();
    any_waits_.store(!waiting_.empty(), std::memory_order_relaxed);
    return piece;
}

}  // namespace nexar::workers
