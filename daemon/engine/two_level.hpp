// run_segment: one segment of a collective on one node. Workers combine the local ranks' shares in an
// accumulator, the nodes exchange, and workers fan the result out. On a single node only the first step is
// left, as one fused job. The accumulator is an output's memory, if there is one.
#pragma once

#include <span>
#include <vector>

#include "collectives/plan.hpp"
#include "engine/children.hpp"
#include "engine/lane.hpp"
#include "task/task.hpp"

namespace nexar::engine {

// One side of a rank's memory: all of it, or a row of windows [S12].
struct Side {
    Place at;              // its first byte; empty: the rank has no such side
    uint32_t windows = 0;  // 0: all of it
    uint64_t stride = 0;
    collectives::Blocks blocks;  // of a side with a block per rank
};

struct LocalBuffers {
    uint32_t rank = 0;
    Side in, out;
    uint64_t scalar = 0;      // premul_sum
    OwnCountsRef own_counts;  // all_to_allv
    std::shared_ptr<const ChildRequest> child;
};

// Takes what all ranks have stated in a collective that makes groups. An error ends it here.
class GatheredRows {
  public:
    virtual Task<> rows_gathered(std::vector<ChildRow> rows) = 0;

  protected:
    ~GatheredRows() = default;
};

// One op on this node; outlives its segments.
struct TwoLevelOp {
    GatheredRows* gathered = nullptr;   // of what makes groups
    const GroupFacts* facts = nullptr;  // for the texts of errors
    OpDescriptor descriptor;
    const collectives::Layout* layout = nullptr;
    collectives::Plan plan;
    CountsRef counts;  // null: the operation has no list of counts
    collectives::NodeIndex self;
    Vector<LocalBuffers> locals;  // this node's ranks, in rank order
};

// The op's segment `index`: a part of its elements (of every block, where ranks have blocks).
Task<> run_segment(MeshLane& lane, const TwoLevelOp& op, uint32_t index);
// The most scratch memory that this takes.
uint64_t scratch_of(const TwoLevelOp& op, uint32_t index);

}  // namespace nexar::engine
