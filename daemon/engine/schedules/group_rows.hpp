// What group_split and group_dup have in common: all that they do is gather a row of each rank, and wait
// until every node has made its groups from them.
#pragma once

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

uint64_t group_rows_scratch(const TwoLevelOp& op, const Geometry& at);
Task<> group_rows_schedule(MeshLane& lane, const TwoLevelOp& op);

}  // namespace nexar::engine
