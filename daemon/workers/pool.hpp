// The worker threads: local reductions, copies, fan-out. A job is cut into pieces of at most about 100 us.
// Whose piece is next is decided when a worker takes it (FairQueue), so nobody's job waits behind all that
// others have queued. The thread that ends a job's last piece reports it.
//
// Thread: submit(), poll_done() and the destructor belong to the control loop, which waits for no worker
// [K32]. Workers take pieces under a lock; completions go through single-producer queues.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/at_work.hpp"
#include "core/spsc_queue.hpp"
#include "core/yields.hpp"
#include "engine/ports.hpp"
#include "loop/wakeup.hpp"
#include "workers/shared_queue.hpp"

namespace nexar::workers {

// Small jobs run on the loop itself: passing 4 KiB to another thread costs more than adding them.
constexpr size_t inline_bytes_max = 4096;

class Pool final : public engine::Workers {
  public:
    Pool(size_t threads, loop::Wakeup& loop_wakeup);
    ~Pool();

    Result<void> made() const;  // an error: a worker lacks a descriptor, and it must not be used
    // The word says how many threads move bulk data between hosts (AtWork): beside these a worker gives way
    // after each piece [K34]. It exists until the destructor ends. Requires: before the first submit().
    void give_way_beside(uint32_t& bulk_threads) { bulk_threads_ = &bulk_threads; }
    void submit(engine::WorkerJob job) override;
    std::optional<uint64_t> poll_done();  // handle of a finished job
    bool idle() const { return in_flight_ == 0; }

  private:
    struct Worker {
        SpscQueue<uint64_t> done{4096};       // worker to loop: handles of finished jobs
        Outbox<uint64_t> done_outbox{done};   // the worker's; empty unless `done` was full
        loop::Wakeup wakeup;                  // the worker sleeps on it
        Yields yields;                        // the worker's: whether it yields before
        std::atomic<bool> unreported{false};  // completions wait in done_outbox: `done` is full
        std::thread thread;
    };
    void run(Worker& w);
    void run_piece(Worker& w, const Piece& piece);
    void sleep(Worker& w);
    void report(Worker& w);
    bool may_sleep(Worker& w);
    void wake(size_t most);

    std::vector<std::unique_ptr<Worker>> workers_;  // empty: every job runs on the loop
    // Each worker takes its next piece when it is free: so an urgent one waits for pieces that run, and for
    // no other ones [K26], and no worker waits for the loop.
    SharedQueue waiting_;
    std::deque<uint64_t> done_inline_;   // finished on the loop, and not polled
    loop::Wakeup* loop_wakeup_;          // ends the loop's poll; outlives this
    uint32_t* bulk_threads_ = nullptr;   // null: there are none
    std::atomic<bool> stopping_{false};  // the destructor runs
    size_t next_ = 0;                    // where wake() looks next
    size_t in_flight_ = 0;               // submitted and not polled
};

}  // namespace nexar::workers
