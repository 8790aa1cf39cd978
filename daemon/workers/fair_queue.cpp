#include "workers/fair_queue.hpp"

namespace nexar::workers {

namespace {

constexpr size_t piece_alignment = 64;  // pieces of any element begin at whole elements, and at cache lines

}  // namespace

Job::Job(engine::WorkerJob j) : job(std::move(j)), bytes(engine::bytes_of(job)), left(bytes) {}

// The rest of a job that nobody wants is one piece, which is skipped.
size_t Job::next_end() const {
    if (!job.wanted()) return bytes;
    const size_t step = std::max(piece_traffic / lists() / piece_alignment, size_t{1}) * piece_alignment;
    return std::min(bytes, begun + step);
}

uint64_t Job::cost() const {
    return job.wanted() ? (next_end() - begun) * lists() : 0;
}

Piece JobQueue::take() {
    const std::shared_ptr<Job>& job = jobs_.front();
    Piece piece{job, job->begun, job->next_end()};
    job->begun = piece.end;
    if (piece.end == job->bytes) jobs_.pop_front();
    return piece;
}

void FairQueue::push(std::shared_ptr<Job> job) {
    const engine::WorkOrigin& origin = job->job.origin;
    tenants_.at(origin.tenant).at(origin.session).at(origin.group).push(std::move(job));
}

}  // namespace nexar::workers
