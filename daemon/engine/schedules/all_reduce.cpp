// all_reduce. Workers combine the local inputs in the first local output; the nodes combine these; workers
// copy the result.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using link::Extents;

Task<> all_reduce_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    std::vector<Extents> ins, outs;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.rows(local.in));
        outs.push_back(at.rows(local.out));
    }
    const Extents accumulator = outs[0];
    std::vector<Extents> results = outs;
    if (!at.alone()) results.resize(1);

    co_await done(lane.job(at.combine(results, std::move(ins))));
    if (op.plan.algorithm == Algorithm::doubling_all_reduce)
        co_await collectives::doubling_all_reduce(lane, accumulator, at.arithmetic());
    else if (op.plan.algorithm == Algorithm::ring_all_reduce)
        co_await collectives::ring_all_reduce(lane, at.parts(accumulator[0].at), at.arithmetic());
    co_await done(lane.job(at.finish(std::move(results))));
    if (!at.alone()) co_await done(lane.job(at.copy(std::move(outs), accumulator)));
    co_return ok();
}

}  // namespace nexar::engine
