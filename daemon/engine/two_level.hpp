// What one segment of a collective does on one node: the local ranks' shares are combined by workers into an
// accumulator, the nodes exchange, the result is handed out by workers. On a single node only the first is
// left, as one fused job. The accumulator is the memory where the result has to be anyway, where there is
// such memory.
#pragma once

#include <vector>

#include "collectives/plan.hpp"
#include "engine/lane.hpp"
#include "task/task.hpp"

namespace nexar::engine {

struct LocalBuffers {
    uint32_t rank = 0;
    std::byte* in = nullptr;
    std::byte* out = nullptr;
};

// One op on this node; outlives its segments.
struct TwoLevelOp {
    OpDescriptor descriptor;
    const collectives::Layout* layout = nullptr;
    collectives::Plan plan;
    collectives::NodeIndex self;
    std::vector<LocalBuffers> locals;  // this node's ranks, in rank order
};

// The part `range` of the op's elements (of every block, where ranks have blocks).
Task<> run_segment(MeshLane& lane, const TwoLevelOp& op, collectives::ElementRange range);

}  // namespace nexar::engine
