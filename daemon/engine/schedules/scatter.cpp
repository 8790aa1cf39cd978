// scatter. The root's node sends every other node the blocks of its ranks out of the root's input, and they
// arrive in those ranks' outputs; workers copy the blocks of the root's node. Scratch: what passes through a
// node of a binomial tree.
#include "engine/schedules/rooted_blocks.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using link::Extents;

uint64_t scatter_scratch(const TwoLevelOp& op, const Geometry& at) {
    const size_t bytes = RootedBlocks(op, at).passing_bytes();
    return bytes == 0 ? 0 : ScratchPool::rounded(bytes);
}

Task<> scatter_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const RootedBlocks rooted(op, at);
    Extents ins, outs;
    for (const LocalBuffers& local : op.locals) {
        const Extents out = at.rows(local.out);
        outs.push_back(out[0]);
        if (local.rank == op.descriptor.root) ins = at.blocks(local.in);
    }
    // At the root's node, fan-out and send both only read, so they run at the same time.
    Op* copied = nullptr;
    std::vector<Extents> blocks;
    if (rooted.is_root()) {
        std::vector<Extents> own(1, std::move(outs));
        copied = &lane.job(at.copy(std::move(own), at.of_node(ins, op.self.value)));
        blocks = at.by_node(ins);
    } else {
        blocks = rooted.by_node(lane, std::move(outs));
    }

    if (op.plan.algorithm == Algorithm::binomial_scatter)
        co_await collectives::binomial_scatter(lane, std::move(blocks), rooted.root());
    else if (op.plan.algorithm == Algorithm::direct_scatter)
        co_await collectives::direct_scatter(lane, std::move(blocks), rooted.root());
    if (copied != nullptr) co_await done(*copied);
    co_return ok();
}

}  // namespace nexar::engine
