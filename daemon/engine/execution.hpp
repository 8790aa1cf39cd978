// Execution: the data of one collective on this node. It runs the plan's segments on lanes, and counts their
// transfers and jobs in flight. Ensures: once it is idle, nothing touches the ranks' memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/gathering.hpp"
#include "engine/op_scratch.hpp"
#include "engine/staging.hpp"
#include "engine/two_level.hpp"

namespace nexar::engine {

class Execution {
  public:
    // Queued when the task has ended, and again when the last transfer or job has.
    class Owner : public Runnable, public GatheredRows {
      public:
        virtual void segments_done(const Staging::Member& member, uint32_t done) = 0;
        Task<> rows_gathered(std::vector<ChildRow>) override { co_return ok(); }

      protected:
        ~Owner() = default;
    };

    Execution(Context& context, const GroupFacts& facts, uint64_t seq, Owner& owner);

    // Adds the memory and the windows of a rank that has posted. Requires: before start().
    void add(const OpRequest& request, uint32_t rank);
    // An error: it has not started, there is no room for its scratch.
    Result<void> start(const OpDescriptor& descriptor, const CountsRef& counts, const Vector<Post>& posts,
                       const WorkOrigin& origin, const TenantRef& tenant);
    // No older collective of the group runs here. An error: there is no room for its scratch [N9].
    Result<void> set_oldest();
    void sweep_lanes();  // those that are over give their scratch back
    // Verbs fail from now on, transfers are withdrawn, jobs skipped. Idle follows.
    void stop(const Error& error);
    void withdraw();                                             // the transfers only
    void set_error(const Error& error) { op_.stopped = error; }  // Requires: after stop()

    void release();  // all memory. Requires: idle

    bool started() const { return static_cast<bool>(task_); }
    bool task_ended() const { return !task_ || task_.ended(); }
    bool idle() const { return task_ended() && op_.outstanding == 0; }
    Result<void> take_result() { return task_.take_result(); }
    const std::optional<Error>& stopped() const { return op_.stopped; }
    size_t outstanding() const { return op_.outstanding; }

    // Staged ranks [S12]. False: of another operation.
    bool on_progress(SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken);
    // False: it has not moved all its input, so it has not handed this collective over.
    bool leave(uint32_t rank);
    bool waits_for_bytes_of(uint32_t rank) const { return staging_ && staging_->waits_for(rank); }
    bool has_filled(uint32_t rank) const;
    uint32_t segments_ended() const { return segments_ended_; }
    uint32_t segments() const { return two_level_.plan.segments; }
    Priority priority() const { return op_.origin.priority; }  // meaningful after start()
    void check_invariants() const;
    std::string plan_text(const OpDescriptor& descriptor) const;

  private:
    Task<> body();
    Task<> lane_task(uint32_t lane);
    void end_segment(uint32_t segment);
    OpScratch::Shape scratch_shape() const;
    Side side(const Post& post, bool out, const OpDescriptor& descriptor) const;
    collectives::Plan plan_of(const OpDescriptor& descriptor) const;
    collectives::Plan known_plan(const OpDescriptor& descriptor, const Vector<Post>& posts) const;

    Context& context_;
    const GroupFacts& facts_;
    Owner& owner_;
    OpOnNode op_;                       // shared by all lanes; has the counts of transfers and jobs
    TwoLevelOp two_level_;              // the plan and the buffers, from start() on
    std::unique_ptr<Staging> staging_;  // null: no rank of this node is staged
    uint32_t segments_ended_ = 0;       // in any order
    OpScratch scratch_;
    Vector<std::unique_ptr<MeshLane>> lanes_;  // of segments whose transfers have not all ended
    Task<> task_;                              // body(); empty before start()
};

}  // namespace nexar::engine
