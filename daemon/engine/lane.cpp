#include "engine/lane.hpp"

#include "core/check.hpp"

namespace nexar::engine {

using collectives::Arithmetic;
using collectives::NodeIndex;

// One Op and its parts in flight: one, or two for a composite.
class MeshLane::Tracked final : public Pending, public RecycledObject {
  public:
    explicit Tracked(MeshLane& lane) : lane_(lane) {}
    Op op;

    void begin() {
        ++parts_;
        ++lane_.outstanding_;
        ++lane_.op_.outstanding;
    }
    void on_completed(Result<void> result) override {
        if (!result && !error_) error_ = std::move(result).error();
        if (--parts_ == 0) finish();
        lane_.one_over();
    }
    void finish() { op.finish(error_ ? Result<void>(std::unexpected(*error_)) : Result<void>()); }
    void finish_with(const Error& error) { op.finish(std::unexpected(error)); }

  private:
    MeshLane& lane_;
    int parts_ = 0;
    std::optional<Error> error_;
};

MeshLane::MeshLane(Context& context, OpOnNode& op, uint32_t phase_base, size_t mesh)
    : context_(context), op_(op), phase_base_(phase_base), mesh_(mesh) {}

MeshLane::~MeshLane() {
    if (dirty_) context_.forget_dirty(*this);
}

uint64_t MeshLane::scratch_taken() const {
    uint64_t bytes = 0;
    for (const ScratchPool::Piece& piece : scratch_) bytes += piece.bytes();
    return bytes;
}

MeshLane::Tracked& MeshLane::track() {
    return *tracked_.emplace_back(std::make_unique<Tracked>(*this));
}

void MeshLane::one_over() {
    const bool is_over = --outstanding_ == 0 && retired;
    if ((--op_.outstanding == 0 || is_over) && op_.on_idle != nullptr) context_.executor.push(op_.on_idle);
}

void MeshLane::touched() {
    if (dirty_) return;
    dirty_ = true;
    context_.mark_dirty(*this);
}

size_t MeshLane::post_send(Tracked& tracked, NodeIndex to, uint32_t phase, link::Extents memory, bool ready) {
    tracked.begin();
    touched();
    const link::TransferKey key{op_.key, phase_base_ + phase};
    batch_.sends.push_back({key, op_.peers[to.value], op_.cls, op_.agreement, std::move(memory),
                            op_.chunk_bytes, link::Account(op_.origin.tenant), op_.origin.priority, ready});
    send_of_.push_back(&tracked);
    return batch_.sends.size() - 1;
}

void MeshLane::post_recv(Tracked& tracked, NodeIndex from, uint32_t phase, link::Extents memory,
                         Reduce reduce, std::optional<size_t> forward) {
    tracked.begin();
    touched();
    const link::TransferKey key{op_.key, phase_base_ + phase};
    batch_.recvs.push_back({key, op_.peers[from.value], op_.cls, op_.agreement, std::move(memory),
                            op_.chunk_bytes, reduce, forward, false, op_.acks_may_wait});
    recv_of_.push_back(&tracked);
}

Op& MeshLane::send(NodeIndex to, uint32_t phase, link::Extents from) {
    Tracked& tracked = track();
    if (op_.stopped)
        tracked.finish_with(*op_.stopped);
    else if (link::bytes_of(from) == 0)
        tracked.finish();  // both sides skip a transfer without bytes
    else
        post_send(tracked, to, phase, std::move(from), true);
    return tracked.op;
}

Op& MeshLane::recv_copy(NodeIndex from, uint32_t phase, link::Extents into) {
    Tracked& tracked = track();
    if (op_.stopped)
        tracked.finish_with(*op_.stopped);
    else if (link::bytes_of(into) == 0)
        tracked.finish();
    else
        post_recv(tracked, from, phase, std::move(into), {}, {});
    return tracked.op;
}

Op& MeshLane::recv_reduce(NodeIndex from, uint32_t phase, link::Extents into, Arithmetic arithmetic) {
    Tracked& tracked = track();
    const Reduce reduce = link::RecvSpec::Reduce{arithmetic.dtype, arithmetic.op};
    if (op_.stopped)
        tracked.finish_with(*op_.stopped);
    else if (link::bytes_of(into) == 0)
        tracked.finish();
    else
        post_recv(tracked, from, phase, std::move(into), reduce, {});
    return tracked.op;
}

Op& MeshLane::through(NodeIndex from, NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                      link::Extents memory, Reduce reduce) {
    Tracked& tracked = track();
    if (op_.stopped) {
        tracked.finish_with(*op_.stopped);
    } else if (link::bytes_of(memory) == 0) {
        tracked.finish();
    } else {
        const size_t forward = post_send(tracked, to, phase_out, memory, false);
        post_recv(tracked, from, phase_in, std::move(memory), reduce, forward);
    }
    return tracked.op;
}

Op& MeshLane::recv_copy_send(NodeIndex from, NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                             link::Extents memory) {
    return through(from, to, phase_in, phase_out, std::move(memory), {});
}

Op& MeshLane::recv_reduce_send(NodeIndex from, NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                               link::Extents memory, Arithmetic arithmetic) {
    return through(from, to, phase_in, phase_out, std::move(memory),
                   link::RecvSpec::Reduce{arithmetic.dtype, arithmetic.op});
}

link::Extent MeshLane::scratch(size_t bytes) {
    scratch_.push_back(context_.scratch.take(bytes));
    return {scratch_.back().place(), bytes};
}

Op& MeshLane::combine(Vector<link::Extents> dsts, Vector<link::Extents> srcs, Arithmetic arithmetic,
                      Vector<uint64_t> scalars) {
    WorkerJob job;
    job.kind = scalars.empty() ? WorkerJob::Kind::reduce : WorkerJob::Kind::premul_sum;
    job.dtype = arithmetic.dtype;
    job.op = arithmetic.op;
    job.dsts = std::move(dsts);
    job.srcs = std::move(srcs);
    job.scalars = std::move(scalars);
    return this->job(std::move(job));
}

Op& MeshLane::copy(link::Extents dst, link::Extents src) {
    WorkerJob job;
    job.srcs.push_back(std::move(src));
    job.dsts.push_back(std::move(dst));
    return this->job(std::move(job));
}

Op& MeshLane::job(WorkerJob job) {
    Tracked& tracked = track();
    if (op_.stopped) {
        tracked.finish_with(*op_.stopped);
    } else if (job.dsts.empty() || link::bytes_of(job.dsts[0]) == 0) {
        tracked.finish();
    } else {
        job.origin = op_.origin;
        job.unwanted = op_.work_unwanted;
        tracked.begin();
        context_.submit_step(std::move(job), tracked);
    }
    return tracked.op;
}

Task<> MeshLane::next_turn() {
    Turns::Waiter turn(context_.turns, op_.origin.tenant);
    co_await done(turn.op);
    co_return ok();
}

void MeshLane::flush() {
    dirty_ = false;
    link::Batch batch = std::exchange(batch_, {});
    const auto recvs = std::exchange(recv_of_, {});
    const auto sends = std::exchange(send_of_, {});
    if (op_.stopped) {  // the op failed between the post and this flush: nothing was sent
        for (Tracked* tracked : recvs) tracked->on_completed(std::unexpected(*op_.stopped));
        for (Tracked* tracked : sends) tracked->on_completed(std::unexpected(*op_.stopped));
        return;
    }
    batch.first_handle = context_.allot_handles(recvs.size() + sends.size());
    uint64_t handle = batch.first_handle;
    for (Tracked* tracked : recvs) context_.expect(handle++, *tracked);
    for (Tracked* tracked : sends) context_.expect(handle++, *tracked);
    context_.ports.meshes[mesh_]->post(std::move(batch));
}

}  // namespace nexar::engine
