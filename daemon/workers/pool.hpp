// The worker threads: local reductions, copies, fan-out. A job is cut into pieces of at most about 100 us, so
// that a small job never waits long behind a big one; the thread that finishes a job's last piece reports the
// job.
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
#include "engine/ports.hpp"
#include "loop/wakeup.hpp"

namespace nexar::workers {

// Small jobs run on the loop itself: passing 4 KiB to another thread costs more than adding them.
constexpr size_t inline_bytes_max = 4096;
constexpr size_t piece_bytes = 256 * 1024;

class Pool final : public engine::Workers {
  public:
    Pool(size_t threads, loop::Wakeup& loop_wakeup);
    ~Pool();

    void submit(engine::WorkerJob job) override;
    std::optional<uint64_t> poll_done();  // handle of a finished job
    bool idle() const { return in_flight_ == 0; }

  private:
    struct Job {
        engine::WorkerJob job;
        std::atomic<size_t> pieces_left;  // not finished by a worker yet
    };
    struct Piece {
        std::shared_ptr<Job> job;
        size_t begin = 0, end = 0;  // Units: bytes of the job's logical range
    };
    struct Worker {
        SpscQueue<Piece> pieces{4096};        // loop to worker
        Outbox<Piece> outbox{pieces};         // the loop's; empty unless `pieces` was full
        SpscQueue<uint64_t> done{4096};       // worker to loop: handles of finished jobs
        Outbox<uint64_t> done_outbox{done};   // the worker's; empty unless `done` was full
        std::atomic<uint32_t> signal{0};      // futex: incremented after a push while the worker sleeps
        std::atomic<bool> sleeping{false};    // announced by the worker
        std::atomic<bool> unreported{false};  // completions wait in done_outbox: `done` is full
        std::atomic<bool> unfilled{false};    // pieces wait in outbox: `pieces` was full
        std::thread thread;
    };
    void run(Worker& w);
    void sleep(Worker& w);
    void report(Worker& w);
    bool may_sleep(Worker& w);
    static void wake(Worker& w);
    static void fill(Worker& w);

    std::vector<std::unique_ptr<Worker>> workers_;  // empty: every job runs on the loop
    std::deque<uint64_t> done_inline_;              // finished on the loop, and not polled
    loop::Wakeup* loop_wakeup_;                     // ends the loop's poll; outlives this
    std::atomic<bool> stopping_{false};             // the destructor runs
    size_t next_ = 0;                               // worker of the next piece, modulo their number
    size_t in_flight_ = 0;                          // submitted and not polled
};

}  // namespace nexar::workers
