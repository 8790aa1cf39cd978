// all_gatherv: the steps of all_gather.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

uint64_t all_gatherv_scratch(const TwoLevelOp& op, const Geometry& at) {
    return all_gather_scratch(op, at);
}

Task<> all_gatherv_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    return all_gather_schedule(lane, op, at);
}

}  // namespace nexar::engine
