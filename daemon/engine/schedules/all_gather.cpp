// all_gather, and all_gatherv, whose blocks differ in length. Workers copy the local inputs into the first
// local output; the nodes exchange their ranks' blocks; workers copy.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

using link::Extents;

uint64_t all_gather_scratch(const TwoLevelOp&, const Geometry&) {
    return 0;
}

Task<> all_gather_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    Extents ins;
    Vector<Extents> outs, local_blocks;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.own(local.in, local.rank));
        outs.push_back(at.blocks(local.out));
        local_blocks.push_back(at.of_node(outs.back(), op.self.value));
    }
    const Extents gathered = outs[0];
    if (!at.alone()) local_blocks.resize(1);

    co_await done(lane.job(at.copy(std::move(local_blocks), std::move(ins))));
    if (at.alone()) co_return ok();
    if (op.plan.algorithm == collectives::Algorithm::bruck_all_gather)
        co_await collectives::bruck_all_gather(lane, at.by_node(gathered));
    else
        co_await collectives::ring_all_gather(lane, at.by_node(gathered));
    co_await done(lane.job(at.copy(std::move(outs), gathered)));
    co_return ok();
}

}  // namespace nexar::engine
