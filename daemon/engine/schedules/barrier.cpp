// barrier. All local ranks have arrived when it begins, so only the nodes synchronize.
#include <bit>

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

// A byte that is sent, and one from each partner.
uint64_t barrier_scratch(const TwoLevelOp&, const Geometry& at) {
    return at.alone() ? 0 : (1 + std::bit_width(at.nodes() - 1)) * ScratchPool::rounded(1);
}

Task<> barrier_schedule(MeshLane& lane, const TwoLevelOp&, Geometry) {
    return collectives::dissemination_barrier(lane);
}

}  // namespace nexar::engine
