// One schedule per collective, each in the file of its name: the steps of a segment on one node. Workers
// combine or gather the local ranks' shares, the nodes exchange (collectives/algorithms.hpp), workers fan the
// result out. On a single node only the local step is left. Its second function says how much scratch memory
// the schedule takes at most, with what its algorithm takes.
#pragma once

#include "collectives/algorithms.hpp"
#include "engine/schedules/geometry.hpp"

namespace nexar::engine {

#define NEXAR_COLLECTIVE(number, name, ...)                                    \
    Task<> name##_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at); \
    uint64_t name##_scratch(const TwoLevelOp& op, const Geometry& at);
#define NEXAR_GROUPING(number, name, ...) NEXAR_COLLECTIVE(number, name)
#include "operations.def"

}  // namespace nexar::engine
