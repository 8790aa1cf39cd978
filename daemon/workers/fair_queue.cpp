#include "workers/fair_queue.hpp"

namespace nexar::workers {

namespace {

constexpr size_t piece_alignment = 64;  // pieces of any element begin at whole elements, and at cache lines

}  // namespace

Job::Job(engine::WorkerJob j) : job(std::move(j)), bytes(engine::bytes_of(job)), left(bytes) {}

// The rest of a job that nobody wants is one piece, which is skipped.
size_t Job::next_end() const {
    return job.wanted() ? std::min(bytes, begun + step()) : bytes;
}

size_t Job::step() const {
    return std::max(piece_traffic / lists() / piece_alignment, size_t{1}) * piece_alignment;
}

size_t Job::pieces() const {
    return (bytes + step() - 1) / step();
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

unsigned Priorities::waiting() const {
    unsigned out = 0;
    for (size_t p = 0; p < priority_count; ++p) out |= (rows_[p].empty() ? 0u : 1u) << p;
    return out;
}

void Priorities::push(std::shared_ptr<Job> job) {
    const engine::WorkOrigin& origin = job->job.origin;
    rows_[index_of(origin.priority)].at(origin.session).at(origin.group).push(std::move(job));
}

Piece Priorities::take() {
    const size_t priority = turns_.next(waiting(), priority_floor);
    const uint64_t cost = rows_[priority].cost();
    Piece piece = rows_[priority].take();
    turns_.served(priority, cost, waiting());
    return piece;
}

void FairQueue::push(std::shared_ptr<Job> job) {
    tenants_.at(job->job.origin.tenant).push(std::move(job));
}

}  // namespace nexar::workers
