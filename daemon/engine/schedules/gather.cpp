// gather: the steps of rooted_blocks.hpp.
#include "engine/schedules/rooted_blocks.hpp"

namespace nexar::engine {

uint64_t gather_scratch(const TwoLevelOp& op, const Geometry& at) {
    return rooted_blocks_scratch(op, at);
}

Task<> gather_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    return rooted_blocks_schedule(lane, op, at, Towards::root);
}

}  // namespace nexar::engine
