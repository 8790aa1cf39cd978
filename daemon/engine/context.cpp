#include "engine/context.hpp"

#include <algorithm>

#include "core/check.hpp"
#include "engine/local_job.hpp"
#include "wire/codec.hpp"

namespace nexar::engine {

bool Context::complete(uint64_t handle, Result<void> result) {
    const auto it = pending_.find(handle);
    if (it == pending_.end()) return false;
    Pending* pending = it->second;
    pending_.erase(it);
    if (config.sabotage.lose_a_wakeup && handle % 64 == 63) return true;
    pending->on_completed(std::move(result));
    return true;
}

namespace {

// What a job costs for each byte. Quick: as long as its memory takes. Slow: a division of integers, or
// several roundings, for each element of a byte, about a hundred times as long.
enum class Pace : uint8_t { quick, usual, slow };

Pace pace_of(const WorkerJob& job) {
    using Kind = WorkerJob::Kind;
    const bool is_byte = reduce::size_of(job.dtype) == 1;
    const bool divides = find_type(static_cast<uint64_t>(job.dtype))->family == TypeFamily::integer;
    switch (job.kind) {
        case Kind::copy:
        case Kind::identity:
            return Pace::quick;
        case Kind::reduce:
            return is_byte ? Pace::usual : Pace::quick;
        case Kind::finish_avg:
            return is_byte || divides ? Pace::slow : Pace::usual;
        default:
            return is_byte ? Pace::slow : Pace::usual;
    }
}

}  // namespace

void Context::submit_job(WorkerJob job, Pending& pending) {
    const size_t most = pace_of(job) == Pace::slow ? inline_slow_bytes_max : inline_job_bytes_max;
    total_bytes(job) <= most ? run_at_once(job, pending) : hand_over(std::move(job), pending);
}

// Others' operations come in the same turn: what one turn may take is bounded.
void Context::submit_step(WorkerJob job, Pending& pending) {
    const size_t bytes = total_bytes(job);
    if (pace_of(job) != Pace::quick || bytes > inline_step_bytes_max || runs_at_once(bytes))
        return submit_job(std::move(job), pending);
    if (std::exchange(steps_at_, now) != now) steps_bytes_ = 0, steps_of_all_ = false;
    if (steps_bytes_ == 0) steps_of_ = job.origin.group;
    steps_of_all_ = steps_of_all_ || steps_of_ != job.origin.group;
    if (steps_bytes_ + bytes > (steps_of_all_ ? inline_turn_bytes_max : inline_step_bytes_max))
        return hand_over(std::move(job), pending);
    steps_bytes_ += bytes;
    run_at_once(job, pending);
}

void Context::run_at_once(const WorkerJob& job, Pending& pending) {
    run_here(job);
    pending.on_completed({});
}

void Context::hand_over(WorkerJob job, Pending& pending) {
    job.handle = allot_handles(1);
    expect(job.handle, pending);
    ports.workers.submit(std::move(job));
}

void Context::forget_dirty(const Poster& poster) {
    std::ranges::replace(dirty_, const_cast<Poster*>(&poster), static_cast<Poster*>(nullptr));
}

void Context::run_ready() {
    do {
        executor.run_ready();
        const auto posters = std::exchange(dirty_, {});
        for (Poster* poster : posters)
            if (poster != nullptr) poster->flush();
    } while (!executor.idle() || !dirty_.empty());
}

PeerState& Context::peer(link::PeerIndex index) {
    NEXAR_CHECK(index.value < peers_max);
    if (index.value >= peers_.size()) peers_.resize(index.value + 1);
    return peers_[index.value];
}

std::optional<link::PeerIndex> Context::find_peer(const NodeId& node) const {
    const auto it = by_node_.find(node);
    if (it == by_node_.end()) return {};
    return it->second;
}

void Context::send(link::PeerIndex to, const wire::Message& message) {
    const auto bytes = wire::encode(message);
    if (wire::is_logged(message))
        ports.peers.append(to, bytes, std::nullopt);
    else
        ports.peers.send(to, bytes);
}

size_t Context::mesh_for(Class cls, uint64_t bytes, uint64_t lane, uint32_t shards) const {
    if (cls == Class::small && config.has_loop_bulk && bytes >= config.loop_bulk_min)
        return ports.meshes.size() - 1;
    if (cls != Class::bulk || ports.meshes.size() == 1) return 0;
    return 1 + static_cast<size_t>(lane % shards);
}

}  // namespace nexar::engine
