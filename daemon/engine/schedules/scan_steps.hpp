// The schedule of scan and exclusive_scan. The nodes' algorithm combines the ranks in their order, also those
// of one node, so no local step precedes it; after it, workers divide the averages, each by its own number of
// ranks. On one node a part of the data at a time is combined, which stays in the caches.
#pragma once

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

uint64_t scan_steps_scratch(const TwoLevelOp& op, const Geometry& at, bool exclusive);
Task<> scan_steps(MeshLane& lane, const TwoLevelOp& op, Geometry at, bool exclusive);

}  // namespace nexar::engine
