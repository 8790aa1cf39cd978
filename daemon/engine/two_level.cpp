#include "engine/two_level.hpp"

#include "engine/schedules/partials.hpp"
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

Task<> run_segment(MeshLane& lane, const TwoLevelOp& op, uint32_t index) {
    const Geometry at(op, index);
    // Also any other kind without data, between nodes.
    if (op.plan.algorithm == collectives::Algorithm::dissemination_barrier)
        return barrier_schedule(lane, op, at);
    if (has_partials(op)) return partials_schedule(lane, op, at);
    switch (op.descriptor.kind) {
#define NEXAR_COLLECTIVE(number, name, ...) \
    case OpKind::name:                      \
        return name##_schedule(lane, op, at);
#define NEXAR_GROUPING(number, name, ...) NEXAR_COLLECTIVE(number, name)
#include "operations.def"
        default:
            return barrier_schedule(lane, op, at);  // messages do not come here
    }
}

uint64_t scratch_of(const TwoLevelOp& op, uint32_t index) {
    const Geometry at(op, index);
    if (op.plan.algorithm == collectives::Algorithm::dissemination_barrier) return barrier_scratch(op, at);
    if (has_partials(op)) return partials_scratch(op, at);
    switch (op.descriptor.kind) {
#define NEXAR_COLLECTIVE(number, name, ...) \
    case OpKind::name:                      \
        return name##_scratch(op, at);
#define NEXAR_GROUPING(number, name, ...) NEXAR_COLLECTIVE(number, name)
#include "operations.def"
        default:
            return 0;
    }
}

}  // namespace nexar::engine
