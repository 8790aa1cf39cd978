// The schedules of reductions whose partials are not of the operation's type (docs/protocol/partials.md), the
// same for all_reduce, reduce and reduce_scatter(v). Along the tree: workers combine each subtree of this
// node's ranks, the nodes exchange these partials, the owner of an element combines them. Wide: the steps of
// the ordinary schedule, with f32 in scratch memory. On one node there is one job.
//
// Scratch: along the tree tree_step_bytes_max at most of each, made and arriving, unless one element of all
// ranks takes more, and one share [Z6]; wide: the segment as f32, and what the algorithm takes.
#pragma once

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

// Whether this one replaces the operation's own schedule.
bool has_partials(const TwoLevelOp& op);
Task<> partials_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at);
uint64_t partials_scratch(const TwoLevelOp& op, const Geometry& at);

}  // namespace nexar::engine
