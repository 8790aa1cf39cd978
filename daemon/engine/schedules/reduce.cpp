// reduce. Workers combine the local inputs, at the root's node in its output; the nodes combine along a tree
// to the root. A node that only sends, and has one rank, sends that rank's input.
#include <algorithm>

#include "collectives/tree.hpp"
#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using collectives::NodeIndex;
using link::Extents;

namespace {

bool has_root(const TwoLevelOp& op) {
    return std::ranges::any_of(op.locals,
                               [&](const LocalBuffers& l) { return l.rank == op.descriptor.root; });
}

// From how many nodes this one receives.
uint32_t children(const TwoLevelOp& op) {
    const uint32_t nodes = op.layout->nodes(), root = op.layout->node_of(op.descriptor.root).value;
    if (op.plan.algorithm == Algorithm::binomial_reduce)
        return static_cast<uint32_t>(
            collectives::BinomialTree(nodes, op.self, NodeIndex(root)).children().size());
    return op.plan.algorithm == Algorithm::chain_reduce && (op.self.value + 1) % nodes != root ? 1 : 0;
}

// A leaf of the tree with one rank only sends: from that rank's memory.
bool sends_input(const TwoLevelOp& op) {
    return op.locals.size() == 1 && !has_root(op) && children(op) == 0 &&
           !reduce::has_form(op.descriptor.op, ReductionForm::scaled);
}

}  // namespace

// The sum, where no output can take it, and the shares of the children in a binomial tree.
uint64_t reduce_scratch(const TwoLevelOp& op, const Geometry& at) {
    if (sends_input(op)) return 0;
    const bool binomial = op.plan.algorithm == Algorithm::binomial_reduce;
    return ((has_root(op) ? 0 : 1) + (binomial ? children(op) : 0)) * ScratchPool::rounded(at.bytes());
}

Task<> reduce_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const NodeIndex root = op.layout->node_of(op.descriptor.root);
    Vector<Extents> ins, results;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.rows(local.in));
        if (local.rank == op.descriptor.root) results.push_back(at.rows(local.out));
    }
    if (results.empty()) results.push_back(sends_input(op) ? ins[0] : Extents{lane.scratch(at.bytes())});
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
