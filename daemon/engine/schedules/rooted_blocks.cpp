#include "engine/schedules/rooted_blocks.hpp"

#include "collectives/tree.hpp"

namespace nexar::engine {
namespace {

using collectives::Algorithm;
using collectives::NodeIndex;
using link::Extents;

bool is_tree(Algorithm algorithm) {
    return algorithm == Algorithm::binomial_gather || algorithm == Algorithm::binomial_scatter;
}

// The other nodes of this node's subtree, with the bytes of their blocks. The root has the memory of all.
struct Passing {
    Vector<std::pair<NodeIndex, size_t>> nodes;
    size_t bytes = 0;

    Passing(const TwoLevelOp& op, const Geometry& at, NodeIndex root) {
        if (!is_tree(op.plan.algorithm) || op.self == root) return;
        for (const NodeIndex node : collectives::BinomialTree(at.nodes(), op.self, root).subtree(op.self)) {
            if (node == op.self) continue;
            nodes.emplace_back(node, at.block_bytes_on(node));
            bytes += nodes.back().second;
        }
    }
};

// By node. Requires: not at the root's node.
Vector<Extents> with_passing(MeshLane& lane, const TwoLevelOp& op, const Passing& passing, Extents own) {
    Vector<Extents> out(op.layout->nodes());
    out[op.self.value] = std::move(own);
    if (passing.bytes == 0) return out;
    Place memory = lane.scratch(passing.bytes).at;
    for (const auto& [node, bytes] : passing.nodes) {
        out[node.value] = {{memory, bytes}};
        memory += bytes;
    }
    return out;
}

Task<> between_nodes(MeshLane& lane, Algorithm algorithm, Vector<Extents> blocks, NodeIndex root) {
    switch (algorithm) {
        case Algorithm::binomial_gather:
            return collectives::binomial_gather(lane, std::move(blocks), root);
        case Algorithm::binomial_scatter:
            return collectives::binomial_scatter(lane, std::move(blocks), root);
        case Algorithm::direct_gather:
            return collectives::direct_gather(lane, std::move(blocks), root);
        default:
            return collectives::direct_scatter(lane, std::move(blocks), root);
    }
}

}  // namespace

uint64_t rooted_blocks_scratch(const TwoLevelOp& op, const Geometry& at) {
    const size_t bytes = Passing(op, at, op.layout->node_of(op.descriptor.root)).bytes;
    return bytes == 0 ? 0 : ScratchPool::rounded(bytes);
}

Task<> rooted_blocks_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at, Towards towards) {
    const NodeIndex root = op.layout->node_of(op.descriptor.root);
    const bool gathers = towards == Towards::root;
    Extents own, all;  // of each rank here its block; at the root's node the blocks of the larger side
    for (const LocalBuffers& local : op.locals) {
        own.push_back(at.own(gathers ? local.in : local.out, local.rank));
        if (local.rank == op.descriptor.root) all = at.blocks(gathers ? local.out : local.in);
    }
    // At the root's node workers and the network write different blocks, or both only read them, so they run
    // at the same time.
    Op* copied = nullptr;
    Vector<Extents> blocks;
    if (op.self == root) {
        Extents here = at.of_node(all, root.value);
        Vector<Extents> to(1, gathers ? here : own);
        copied = &lane.job(at.copy(std::move(to), gathers ? std::move(own) : std::move(here)));
        blocks = at.by_node(all);
    } else {
        blocks = with_passing(lane, op, Passing(op, at, root), std::move(own));
    }
    if (!at.alone()) co_await between_nodes(lane, op.plan.algorithm, std::move(blocks), root);
    if (copied != nullptr) co_await done(*copied);
    co_return ok();
}

}  // namespace nexar::engine
