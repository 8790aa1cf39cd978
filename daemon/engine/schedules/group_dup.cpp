// group_dup: one child with all ranks.
#include "engine/schedules/group_rows.hpp"

namespace nexar::engine {

uint64_t group_dup_scratch(const TwoLevelOp& op, const Geometry& at) {
    return group_rows_scratch(op, at);
}

Task<> group_dup_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry) {
    return group_rows_schedule(lane, op);
}

}  // namespace nexar::engine
