// reduce_scatterv: the steps of reduce_scatter.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

uint64_t reduce_scatterv_scratch(const TwoLevelOp& op, const Geometry& at) {
    return reduce_scatter_scratch(op, at);
}

Task<> reduce_scatterv_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    return reduce_scatter_schedule(lane, op, at);
}

}  // namespace nexar::engine
