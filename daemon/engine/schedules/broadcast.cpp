// broadcast. The root's node sends its input; other nodes receive into their first local output, and workers
// copy it.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using collectives::NodeIndex;
using link::Extents;

uint64_t broadcast_scratch(const TwoLevelOp&, const Geometry&) {
    return 0;
}

Task<> broadcast_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const NodeIndex root = op.layout->node_of(op.descriptor.root);
    Vector<Extents> outs;
    Extents source;
    for (const LocalBuffers& local : op.locals) {
        if (local.rank == op.descriptor.root) source = at.rows(local.in);
        if (local.out.at) outs.push_back(at.rows(local.out));
    }
    // At the root's node, fan-out and send both only read, so they run at the same time.
    Op* handed_out = nullptr;
    if (op.self == root)
        handed_out = &lane.job(at.copy(outs, source));
    else
        source = outs[0];

    if (op.plan.algorithm == Algorithm::binomial_broadcast)
        co_await collectives::binomial_broadcast(lane, source, root);
    else if (op.plan.algorithm == Algorithm::chain_broadcast)
        co_await collectives::chain_broadcast(lane, source, root);
    if (handed_out == nullptr) handed_out = &lane.job(at.copy(std::move(outs), source));
    co_await done(*handed_out);
    co_return ok();
}

}  // namespace nexar::engine
