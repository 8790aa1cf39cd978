// reduce. Workers combine the local inputs, at the root's node in its output; the nodes combine along a tree
// to the root.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using collectives::NodeIndex;
using link::Extents;

Task<> reduce_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const NodeIndex root = op.layout->node_of(op.descriptor.root);
    std::vector<Extents> ins, results;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.rows(local.in));
        if (local.rank == op.descriptor.root) results.push_back(at.rows(local.out));
    }
    if (results.empty()) results.push_back(Extents{lane.scratch(at.bytes())});
    const Extents accumulator = results[0];

    co_await done(lane.job(at.combine(results, std::move(ins))));
    if (op.plan.algorithm == Algorithm::binomial_reduce)
        co_await collectives::binomial_reduce(lane, accumulator, root, at.arithmetic());
    else if (op.plan.algorithm == Algorithm::chain_reduce)
        co_await collectives::chain_reduce(lane, accumulator, root, at.arithmetic());
    if (op.self == root) co_await done(lane.job(at.finish(std::move(results))));
    co_return ok();
}

}  // namespace nexar::engine
