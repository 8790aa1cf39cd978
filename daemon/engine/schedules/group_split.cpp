// group_split: a child for each colour.
#include "engine/schedules/group_rows.hpp"

namespace nexar::engine {

uint64_t group_split_scratch(const TwoLevelOp& op, const Geometry& at) {
    return group_rows_scratch(op, at);
}

Task<> group_split_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry) {
    return group_rows_schedule(lane, op);
}

}  // namespace nexar::engine
