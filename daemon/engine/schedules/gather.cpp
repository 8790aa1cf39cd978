// gather. The nodes send their ranks' inputs, as they lie, to the root's node, which receives them in the
// root's output; workers copy the inputs of the root's node there. Scratch: what passes through a node of a
// binomial tree.
#include "engine/schedules/rooted_blocks.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using link::Extents;

uint64_t gather_scratch(const TwoLevelOp& op, const Geometry& at) {
    const size_t bytes = RootedBlocks(op, at).passing_bytes();
    return bytes == 0 ? 0 : ScratchPool::rounded(bytes);
}

Task<> gather_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const RootedBlocks rooted(op, at);
    Extents ins, outs;
    for (const LocalBuffers& local : op.locals) {
        const Extents in = at.rows(local.in);
        ins.push_back(in[0]);
        if (local.rank == op.descriptor.root) outs = at.blocks(local.out);
    }
    // At the root's node, workers and the network write different blocks, so they run at the same time.
    Op* copied = nullptr;
    std::vector<Extents> blocks;
    if (rooted.is_root()) {
        std::vector<Extents> own(1, at.of_node(outs, op.self.value));
        copied = &lane.job(at.copy(std::move(own), std::move(ins)));
        blocks = at.by_node(outs);
    } else {
        blocks = rooted.by_node(lane, std::move(ins));
    }

    if (op.plan.algorithm == Algorithm::binomial_gather)
        co_await collectives::binomial_gather(lane, std::move(blocks), rooted.root());
    else if (op.plan.algorithm == Algorithm::direct_gather)
        co_await collectives::direct_gather(lane, std::move(blocks), rooted.root());
    if (copied != nullptr) co_await done(*copied);
    co_return ok();
}

}  // namespace nexar::engine
