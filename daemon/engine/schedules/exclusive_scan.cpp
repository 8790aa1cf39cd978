// exclusive_scan: see scan_steps.hpp. Rank 0 gets the identity; there is no avg.
#include "engine/schedules/scan_steps.hpp"

namespace nexar::engine {

uint64_t exclusive_scan_scratch(const TwoLevelOp& op, const Geometry& at) {
    return scan_steps_scratch(op, at, true);
}

Task<> exclusive_scan_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    return scan_steps(lane, op, at, true);
}

}  // namespace nexar::engine
