// barrier. All local ranks have arrived when it begins, so only the nodes synchronize.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

Task<> barrier_schedule(MeshLane& lane, const TwoLevelOp&, Geometry) {
    return collectives::dissemination_barrier(lane);
}

}  // namespace nexar::engine
