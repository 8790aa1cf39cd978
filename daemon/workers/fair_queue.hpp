// FairQueue: the jobs of which pieces wait for a worker, and the piece that is next: in turns between
// tenants, between each one's sessions, and between each one's groups; in order in a group
// (docs/protocol/tenants.md [N5]). Dry. Thread: the control loop's, but for Job::left.
#pragma once

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

    engine::WorkerJob job;
    const size_t bytes;        // of its logical range
    size_t begun = 0;          // bytes whose pieces were taken
    std::atomic<size_t> left;  // bytes whose pieces have not ended

  private:
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

class FairQueue {
  public:
    bool empty() const { return tenants_.empty(); }
    // Requires: the job has bytes.
    void push(std::shared_ptr<Job> job);
    Piece take() { return tenants_.take(); }  // Requires: not empty
    size_t tenants() const { return tenants_.size(); }

  private:
    Turns<Turns<Turns<JobQueue>>> tenants_;
};

}  // namespace nexar::workers
