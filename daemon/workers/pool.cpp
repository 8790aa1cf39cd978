#include "workers/pool.hpp"

#include <sched.h>

#include "engine/local_job.hpp"

namespace nexar::workers {

Pool::Pool(size_t threads, loop::Wakeup& loop_wakeup) : loop_wakeup_(&loop_wakeup) {
    for (size_t i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
    for (auto& w : workers_) w->thread = std::thread([this, &w = *w] { run(w); });
}

Pool::~Pool() {
    stopping_.store(true, std::memory_order_seq_cst);
    for (auto& w : workers_) {
        w->signal.fetch_add(1, std::memory_order_seq_cst);
        w->signal.notify_one();
        w->thread.join();
    }
}

void Pool::submit(engine::WorkerJob job) {
    ++in_flight_;
    const size_t bytes = engine::bytes_of(job);
    if (bytes <= inline_bytes_max || workers_.empty()) {
        engine::run_piece(job, 0, bytes);
        done_inline_.push_back(job.handle);
        return;
    }
    auto shared = std::make_shared<Job>();
    shared->job = std::move(job);
    const size_t pieces = (bytes + piece_bytes - 1) / piece_bytes;
    shared->pieces_left.store(pieces, std::memory_order_relaxed);
    for (size_t i = 0; i < pieces; ++i) {
        Worker& w = *workers_[next_++ % workers_.size()];
        w.outbox.push({shared, i * piece_bytes, std::min(bytes, (i + 1) * piece_bytes)});
    }
    for (auto& w : workers_) fill(*w);
}

// Moves waiting pieces into the queue as far as it has room. `unfilled` is set before the attempt: either the
// loop sees the room, or the worker that sleeps at an empty queue sees `unfilled` and wakes the loop.
void Pool::fill(Worker& w) {
    if (w.outbox.waits()) {
        w.unfilled.store(true, std::memory_order_relaxed);
        std::atomic_thread_fence(std::memory_order_seq_cst);  // pairs with sleep()'s
        w.unfilled.store(!w.outbox.flush(), std::memory_order_relaxed);
    }
    if (!w.pieces.empty()) wake(w);
}

std::optional<uint64_t> Pool::poll_done() {
    if (!done_inline_.empty()) {
        const uint64_t handle = done_inline_.front();
        done_inline_.pop_front();
        --in_flight_;
        return handle;
    }
    for (auto& w : workers_) {
        fill(*w);
        if (auto handle = w->done.pop()) {
            std::atomic_thread_fence(
                std::memory_order_seq_cst);  // the room before the look; pairs with sleep()'s
            if (w->unreported.load(std::memory_order_relaxed)) wake(*w);
            --in_flight_;
            return handle;
        }
    }
    return std::nullopt;
}

void Pool::wake(Worker& w) {
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the push before the look; pairs with sleep()'s
    if (!w.sleeping.load(std::memory_order_relaxed)) return;
    w.signal.fetch_add(1, std::memory_order_release);
    w.signal.notify_one();
}

void Pool::sleep(Worker& w) {
    // A short phase of yields: the next segment of the same operation usually follows within microseconds.
    for (int i = 0; i < 64; ++i) {
        if (!w.pieces.empty() || stopping_.load(std::memory_order_relaxed)) return;
        sched_yield();
    }
    const uint32_t seen = w.signal.load(std::memory_order_acquire);
    w.sleeping.store(true, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // the announcement before the second look
    if (may_sleep(w) && !stopping_.load(std::memory_order_seq_cst)) w.signal.wait(seen);
    w.sleeping.store(false, std::memory_order_relaxed);
}

// Moves waiting completions into the queue as far as it has room, and wakes the loop, which may sleep by now.
void Pool::report(Worker& w) {
    const bool waits = w.done_outbox.waits();
    w.unreported.store(waits && !w.done_outbox.flush(), std::memory_order_relaxed);
    if (waits) loop_wakeup_->notify();
}

// True: no piece waits, and no completion that finds room; poll_done() wakes a worker whose queue was full.
bool Pool::may_sleep(Worker& w) {
    if (!w.pieces.empty()) return false;
    if (w.unfilled.load(std::memory_order_relaxed)) loop_wakeup_->notify();
    if (!w.done_outbox.waits()) return true;
    report(w);
    return w.done_outbox.waits();
}

void Pool::run(Worker& w) {
    while (true) {
        auto piece = w.pieces.pop();
        if (!piece) {
            report(w);
            if (stopping_.load(std::memory_order_seq_cst)) return;
            sleep(w);
            continue;
        }
        if (w.done_outbox.waits()) report(w);
        if (piece->job->job.wanted()) engine::run_piece(piece->job->job, piece->begin, piece->end);
        // acq_rel: the last piece's completion is ordered after every piece of every worker.
        if (piece->job->pieces_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
            w.done_outbox.push(piece->job->job.handle);
            loop_wakeup_->notify();
        }
    }
}

}  // namespace nexar::workers
