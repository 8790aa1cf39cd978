// reduce_scatter, and reduce_scatterv, whose blocks differ in length. Workers combine the local inputs, a
// block for every rank; each node ends with its own ranks' blocks, which workers copy to them. Scratch
// between nodes: a segment.
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

using link::Extents;

uint64_t reduce_scatter_scratch(const TwoLevelOp&, const Geometry& at) {
    return at.alone() ? 0 : ScratchPool::rounded(at.packed_bytes());
}

Task<> reduce_scatter_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    Vector<Extents> ins;
    Extents outs;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.blocks(local.in));
        outs.push_back(at.own(local.out, local.rank));
    }
    Vector<Extents> results{outs};
    if (at.alone()) {
        co_await done(lane.job(at.combine(results, std::move(ins))));
        co_await done(lane.job(at.finish(std::move(results))));
        co_return ok();
    }
    // The accumulator has a block for every rank; only the blocks of this node's ranks are complete at the
    // end.
    const link::Extent memory = lane.scratch(at.packed_bytes());
    const Extents partial = at.packed(memory.at);
    Vector<Extents> accumulator{partial};

    co_await done(lane.job(at.combine(std::move(accumulator), std::move(ins))));
    co_await collectives::ring_reduce_scatter(lane, at.by_node(partial), at.arithmetic());
    co_await done(lane.job(at.copy(results, at.of_node(partial, op.self.value))));
    co_await done(lane.job(at.finish(std::move(results))));
    co_return ok();
}

}  // namespace nexar::engine
