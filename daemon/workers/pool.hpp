// The worker threads: local reductions, copies, fan-out. A job is cut into pieces of at most about 100 us. A
// worker has only few pieces at a time; whose piece is next is decided when it is handed out (FairQueue), so
// nobody's job waits behind all that others have queued. The thread that ends a job's last piece reports it.
//
// Thread: submit(), poll_done() and the destructor belong to the control loop. Loop and workers exchange
// pieces and completions through single-producer queues; there is no lock.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "core/spsc_queue.hpp"
#include "core/yields.hpp"
#include "engine/ports.hpp"
#include "loop/wakeup.hpp"
#include "workers/fair_queue.hpp"

namespace nexar::workers {

// Small jobs run on the loop itself: passing 4 KiB to another thread costs more than adding them.
constexpr size_t inline_bytes_max = 4096;
// Pieces of one worker, with the one that it runs: enough that it need not wait for the loop, and no more.
constexpr size_t pieces_at_worker_max = 2;

class Pool final : public engine::Workers {
  public:
    Pool(size_t threads, loop::Wakeup& loop_wakeup);
    ~Pool();

    void submit(engine::WorkerJob job) override;
    std::optional<uint64_t> poll_done();  // handle of a finished job
    bool idle() const { return in_flight_ == 0; }

  private:
    struct Worker {
        SpscQueue<Piece> pieces{pieces_at_worker_max};  // loop to worker
        size_t handed = 0;                              // the loop's: pieces that it has pushed
        std::atomic<size_t> ended{0};                   // pieces that the worker has run
        SpscQueue<uint64_t> done{4096};                 // worker to loop: handles of finished jobs
        Outbox<uint64_t> done_outbox{done};             // the worker's; empty unless `done` was full
        loop::Wakeup wakeup;                            // the worker sleeps on it
        Yields yields;                                  // the worker's: whether it yields before
        std::atomic<bool> unreported{false};            // completions wait in done_outbox: `done` is full
        std::thread thread;

        size_t here() const { return handed - ended.load(std::memory_order_acquire); }
    };
    void run(Worker& w);
    void run_piece(Worker& w, const Piece& piece);
    void sleep(Worker& w);
    void report(Worker& w);
    bool may_sleep(Worker& w);
    void fill();
    void hand_out();
    Worker* least_busy();

    std::vector<std::unique_ptr<Worker>> workers_;  // empty: every job runs on the loop
    FairQueue waiting_;                             // the loop's: what no worker has got yet
    std::atomic<bool> more_waits_{false};           // waiting_ is not empty: workers ask for more
    std::deque<uint64_t> done_inline_;              // finished on the loop, and not polled
    loop::Wakeup* loop_wakeup_;                     // ends the loop's poll; outlives this
    std::atomic<bool> stopping_{false};             // the destructor runs
    size_t next_ = 0;                               // worker of the next piece among equals
    size_t in_flight_ = 0;                          // submitted and not polled
};

}  // namespace nexar::workers
