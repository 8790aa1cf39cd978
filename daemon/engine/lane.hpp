// MeshLane: the verbs of collectives/ for one segment of one op, over the meshes and the workers. Verbs that
// are posted before the algorithm suspends leave as one batch. Owner: the lane owns the Ops that it returns
// and its scratch; the run keeps the lane until idle(), because transfers and jobs may outlive the algorithm.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/link.hpp"
#include "engine/context.hpp"

namespace nexar::engine {

// The state that all segments of an op on this node share. Owner: its run.
struct OpOnNode {
    link::OpKey key;
    link::Agreement agreement;
    collectives::NodeIndex self;
    std::span<const link::PeerIndex> peers;  // the group's, by NodeIndex; [self] is not used
    Class cls = Class::small;
    uint32_t chunk_bytes = 0;
    bool acks_may_wait = false;  // its algorithm awaits none
    Vector<RegionPin> pins;      // of the memory of its ranks here [M3]
    WorkOrigin origin;           // of its jobs: one of the ranks here
    // Set: the op has failed, and every later verb fails at once with this error.
    std::optional<Error> stopped;
    // The same for worker threads: set when `stopped` is.
    std::shared_ptr<std::atomic<bool>> work_unwanted =
        std::allocate_shared<std::atomic<bool>>(Recycled<std::atomic<bool>>(), false);
    size_t outstanding = 0;       // transfers and jobs of all its lanes
    Runnable* on_idle = nullptr;  // queued when outstanding becomes 0, and when a retired lane becomes idle
};

class MeshLane final : public collectives::Lane, public Poster, public RecycledObject {
  public:
    MeshLane(Context& context, OpOnNode& op, uint32_t phase_base, size_t mesh);
    ~MeshLane();
    MeshLane(const MeshLane&) = delete;
    MeshLane& operator=(const MeshLane&) = delete;

    uint64_t scratch_taken() const;

    bool idle() const { return outstanding_ == 0; }
    uint32_t segment = 0;
    uint64_t scratch_max = 0;  // what scratch() may take in all, rounded as it does
    bool retired = false;      // its segment's task has ended

    collectives::NodeIndex self() const override { return op_.self; }
    uint32_t nodes() const override { return static_cast<uint32_t>(op_.peers.size()); }
    Op& recv_copy(collectives::NodeIndex from, uint32_t phase, link::Extents into) override;
    Op& recv_reduce(collectives::NodeIndex from, uint32_t phase, link::Extents into,
                    collectives::Arithmetic arithmetic) override;
    Op& send(collectives::NodeIndex to, uint32_t phase, link::Extents from) override;
    Op& recv_copy_send(collectives::NodeIndex from, collectives::NodeIndex to, uint32_t phase_in,
                       uint32_t phase_out, link::Extents memory) override;
    Op& recv_reduce_send(collectives::NodeIndex from, collectives::NodeIndex to, uint32_t phase_in,
                         uint32_t phase_out, link::Extents memory,
                         collectives::Arithmetic arithmetic) override;
    void await_together() override { batch_.awaited_together = dirty_; }
    link::Extent scratch(size_t bytes) override;
    Op& combine(Vector<link::Extents> dsts, Vector<link::Extents> srcs, collectives::Arithmetic arithmetic,
                Vector<uint64_t> scalars) override;
    Op& copy(link::Extents dst, link::Extents src) override;
    // Any job. One without bytes completes at once.
    Op& job(WorkerJob job);
    // For work of this operation that is too long for one turn of the loop: waits for the next one.
    Task<> next_turn();

    void flush() override;

  private:
    class Tracked;
    using Reduce = std::optional<link::RecvSpec::Reduce>;

    Tracked& track();
    Op& through(collectives::NodeIndex from, collectives::NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                link::Extents memory, Reduce reduce);
    size_t post_send(Tracked& tracked, collectives::NodeIndex to, uint32_t phase, link::Extents memory,
                     bool ready);
    void post_recv(Tracked& tracked, collectives::NodeIndex from, uint32_t phase, link::Extents memory,
                   Reduce reduce, std::optional<size_t> forward);
    void touched();
    void one_over();

    Context& context_;
    OpOnNode& op_;
    uint32_t phase_base_;                       // added to the algorithm's phases
    size_t mesh_;                               // index of the mesh: 0 is the control loop's
    size_t outstanding_ = 0;                    // parts of Ops that have not ended: transfers and jobs
    bool dirty_ = false;                        // batch_ has a part, and flush() is due
    link::Batch batch_;                         // posted since the last flush()
    Vector<Tracked*> recv_of_, send_of_;        // by index in batch_
    Vector<std::unique_ptr<Tracked>> tracked_;  // all Ops of this lane
    Vector<ScratchPool::Piece> scratch_;
};

}  // namespace nexar::engine
