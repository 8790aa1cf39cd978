// gather and scatter, and gatherv and scatterv, whose blocks differ in length: the same steps towards the
// root and away from it. Workers copy between the root's larger side and the other sides of its node, while
// the nodes move the blocks of all others, from where they lie to where they belong. Scratch: in a binomial
// tree the blocks that pass through a node on their way between the root and its subtree.
#pragma once

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

enum class Towards : uint8_t { root, ranks };

Task<> rooted_blocks_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at, Towards towards);
uint64_t rooted_blocks_scratch(const TwoLevelOp& op, const Geometry& at);

}  // namespace nexar::engine
