// FairQueue: the jobs of which pieces wait for a worker, and the piece that is next: in turns between
// tenants; of each one by priority (docs/protocol/priorities.md [K22]); of each priority in turns between
// sessions, and between each one's groups; in order in a group (docs/protocol/tenants.md [N5]). Dry. Thread:
// its owner keeps it to one at a time, but for Job::left.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <list>
#include <memory>

#include "engine/local_job.hpp"
#include "workers/turns.hpp"

namespace nexar::workers {

// Pieces read and write so much in all: at most about 100 us.
constexpr size_t piece_traffic = turn_cost;

struct Job {
    explicit Job(engine::WorkerJob j);
    // Of its next piece: the bytes that are read and written. 0: nobody wants the job any more.
    uint64_t cost() const;
    size_t next_end() const;
    size_t pieces() const;  // in all, while it is wanted

    engine::WorkerJob job;
    const size_t bytes;        // of its logical range
    size_t begun = 0;          // bytes whose pieces were taken
    std::atomic<size_t> left;  // bytes whose pieces have not ended

  private:
    size_t step() const;  // logical bytes of a piece
    size_t lists() const { return job.dsts.size() + job.srcs.size(); }
};

struct Piece {
    std::shared_ptr<Job> job;
    size_t begin = 0, end = 0;  // Units: bytes of the job's logical range
};

// One group's jobs, in order.
class JobQueue {
  public:
    bool empty() const { return jobs_.empty(); }
    void push(std::shared_ptr<Job> job) { jobs_.push_back(std::move(job)); }
    uint64_t cost() const { return jobs_.front()->cost(); }
    Piece take();

  private:
    std::list<std::shared_ptr<Job>> jobs_;  // of each at least one piece was not taken
};

// A less urgent job of a tenant that was passed over by pieces of so much traffic gets one [K22].
constexpr uint64_t priority_floor = 4 * turn_cost;

// One tenant's jobs.
class Priorities {
  public:
    bool empty() const { return waiting() == 0; }
    uint64_t cost() { return rows_[turns_.next(waiting(), priority_floor)].cost(); }
    Piece take();
    void push(std::shared_ptr<Job> job);

  private:
    unsigned waiting() const;
    std::array<Turns<Turns<JobQueue>>, priority_count> rows_;  // by priority; sessions, groups
    PriorityTurns turns_;
};

class FairQueue {
  public:
    bool empty() const { return tenants_.empty(); }
    // Requires: the job has bytes.
    void push(std::shared_ptr<Job> job);
    Piece take() { return tenants_.take(); }  // Requires: not empty
    size_t tenants() const { return tenants_.size(); }

  private:
    Turns<Priorities> tenants_;
};

}  // namespace nexar::workers
