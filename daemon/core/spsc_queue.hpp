// A bounded single-producer single-consumer queue between two threads of the daemon, without locks.
// Thread: push() on one, pop() on one, at the same time.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "core/check.hpp"

namespace nexar {

template <class T>
class SpscQueue {
  public:
    explicit SpscQueue(size_t capacity) : mask_(std::bit_ceil(capacity) - 1), slots_(new T[mask_ + 1]) {}
    SpscQueue(const SpscQueue&) = delete;
    SpscQueue& operator=(const SpscQueue&) = delete;

    // Producer. False: full, and `value` is untouched.
    bool push(T& value) {
        const size_t tail = tail_.load(std::memory_order_relaxed);
        if (tail - head_seen_ > mask_) {
            head_seen_ = head_.load(std::memory_order_acquire);  // pairs with the release in pop()
            if (tail - head_seen_ > mask_) return false;
        }
        slots_[tail & mask_] = std::move(value);
        tail_.store(tail + 1, std::memory_order_release);  // pairs with the acquire in pop()
        return true;
    }
    // Consumer.
    std::optional<T> pop() {
        const size_t head = head_.load(std::memory_order_relaxed);
        if (head == tail_seen_) {
            tail_seen_ = tail_.load(std::memory_order_acquire);
            if (head == tail_seen_) return std::nullopt;
        }
        std::optional<T> value(std::move(slots_[head & mask_]));
        slots_[head & mask_] = T();  // what the slot owned is freed here, on the consumer's thread, now
        head_.store(head + 1, std::memory_order_release);
        return value;
    }
    // Either side; true at the moment of the call. seq_cst: a sleeper rechecks with it after it has announced
    // its sleep.
    bool empty() const {
        return head_.load(std::memory_order_seq_cst) == tail_.load(std::memory_order_seq_cst);
    }

  private:
    const size_t mask_;  // capacity - 1
    std::unique_ptr<T[]> slots_;
    alignas(64) std::atomic<size_t> head_{0};  // values popped so far
    size_t tail_seen_ = 0;                     // the consumer's last view of tail_; never ahead of it
    alignas(64) std::atomic<size_t> tail_{0};  // values pushed so far
    size_t head_seen_ = 0;                     // the producer's last view of head_; never ahead of it
};

// The producer's end of a queue that must not refuse: values that do not fit wait here, in order, until
// flush(). Bounded by what the producer has in flight (transfers, jobs), which has limits of its own.
template <class T>
class Outbox {
  public:
    explicit Outbox(SpscQueue<T>& queue) : queue_(&queue) {}
    void push(T value) {
        if (waiting_.empty() && queue_->push(value)) return;
        waiting_.push_back(std::move(value));
    }
    bool waits() const { return !waiting_.empty(); }
    // True: everything is in the queue.
    bool flush() {
        while (!waiting_.empty()) {
            if (!queue_->push(waiting_.front())) return false;
            waiting_.pop_front();
        }
        return true;
    }

  private:
    SpscQueue<T>* queue_;
    std::deque<T> waiting_;  // later than everything in the queue; empty while the queue has room
};

}  // namespace nexar
