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

// One side of a rank's memory: all of it, or a row of windows [S12].
struct Side {
    std::byte* data = nullptr;
    uint32_t windows = 0;  // 0: all of it
    uint64_t stride = 0;
    collectives::Blocks blocks;  // of a side with a block per rank
};

struct LocalBuffers {
    uint32_t rank = 0;
    Side in, out;
};

// One op on this node; outlives its segments.
struct TwoLevelOp {
    OpDescriptor descriptor;
    const collectives::Layout* layout = nullptr;
    collectives::Plan plan;
    collectives::NodeIndex self;
    std::vector<LocalBuffers> locals;  // this node's ranks, in rank order
};

// The op's segment `index`: a part of its elements (of every block, where ranks have blocks).
Task<> run_segment(MeshLane& lane, const TwoLevelOp& op, uint32_t index);

}  // namespace nexar::engine
