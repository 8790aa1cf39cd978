#include "workers/pool.hpp"

#include <pthread.h>

#include <string>

#include "engine/local_job.hpp"
#include "loop/loop.hpp"
#include "loop/processor.hpp"

namespace nexar::workers {

Pool::Pool(size_t threads, loop::Wakeup& loop_wakeup) : loop_wakeup_(&loop_wakeup) {
    for (size_t i = 0; i < threads; ++i) workers_.push_back(std::make_unique<Worker>());
    for (size_t i = 0; i < threads; ++i) {
        Worker& w = *workers_[i];
        w.thread = std::thread([this, &w] { run(w); });
        const std::string name = "worker-" + std::to_string(i);  // as top -H shows it
        pthread_setname_np(w.thread.native_handle(), name.c_str());
    }
}

Pool::~Pool() {
    stopping_.store(true, std::memory_order_seq_cst);
    for (auto& w : workers_) {
        w->wakeup.notify();
        w->thread.join();
    }
}

Result<void> Pool::made() const {
    for (const auto& w : workers_) NEXAR_TRY_VOID(w->wakeup.made());
    return {};
}

void Pool::submit(engine::WorkerJob job) {
    ++in_flight_;
    const size_t bytes = engine::bytes_of(job);
    if (bytes <= inline_bytes_max || workers_.empty()) {
        engine::run_piece(job, 0, bytes);
        done_inline_.push_back(job.handle);
        return;
    }
    auto made = std::make_shared<Job>(std::move(job));
    const size_t pieces = made->pieces();
    waiting_.push(std::move(made));
    wake(pieces);
}

// Those that run look for themselves when their piece has ended.
void Pool::wake(size_t most) {
    for (size_t i = 0; i < workers_.size() && most > 0; ++i)
        if (workers_[next_++ % workers_.size()]->wakeup.notify()) --most;
}

std::optional<uint64_t> Pool::poll_done() {
    if (!done_inline_.empty()) {
        const uint64_t handle = done_inline_.front();
        done_inline_.pop_front();
        --in_flight_;
        return handle;
    }
    for (auto& w : workers_) {
        if (auto handle = w->done.pop()) {
            // The room before the look; pairs with sleep()'s announcement.
            std::atomic_thread_fence(std::memory_order_seq_cst);
            if (w->unreported.load(std::memory_order_relaxed)) w->wakeup.notify();
            --in_flight_;
            return handle;
        }
    }
    return std::nullopt;
}

void Pool::sleep(Worker& w) {
    // A short phase of yields: the next segment of the same operation usually follows within microseconds.
    Time now = loop::Loop::now();
    for (int i = 0; i < 64; ++i) {
        if (waiting_.any() || stopping_.load(std::memory_order_relaxed)) return;
        if (!loop::yield(w.yields, now)) break;
    }
    w.wakeup.announce_sleep();
    if (may_sleep(w) && !stopping_.load(std::memory_order_seq_cst)) w.wakeup.sleep();
    w.wakeup.awake();
}

// Moves waiting completions into the queue as far as it has room, and wakes the loop, which may sleep by now.
void Pool::report(Worker& w) {
    const bool waits = w.done_outbox.waits();
    w.unreported.store(waits && !w.done_outbox.flush(), std::memory_order_relaxed);
    if (waits) loop_wakeup_->notify();
}

// True: no piece waits, and no completion that finds room; poll_done() wakes a worker whose queue was full.
bool Pool::may_sleep(Worker& w) {
    if (waiting_.any()) return false;
    if (!w.done_outbox.waits()) return true;
    report(w);
    return w.done_outbox.waits();
}

void Pool::run(Worker& w) {
    loop::set_slice(loop::Slice::bulk);
    loop::Courtesy courtesy;
    while (true) {
        const auto piece = waiting_.take();
        if (!piece) {
            report(w);
            if (stopping_.load(std::memory_order_seq_cst)) return;
            sleep(w);
            continue;
        }
        if (w.done_outbox.waits()) report(w);
        run_piece(w, *piece);
        if (AtWork::any(bulk_threads_)) courtesy.give_way();
    }
}

void Pool::run_piece(Worker& w, const Piece& piece) {
    Job& job = *piece.job;
    if (job.job.wanted()) engine::run_piece(job.job, piece.begin, piece.end);
    const size_t bytes = piece.end - piece.begin;
    // acq_rel: the last piece's completion is ordered after every piece of every worker.
    if (job.left.fetch_sub(bytes, std::memory_order_acq_rel) == bytes) {
        w.done_outbox.push(job.job.handle);
        loop_wakeup_->notify();
    }
}

}  // namespace nexar::workers
