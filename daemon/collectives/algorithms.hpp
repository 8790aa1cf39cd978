// The algorithms between nodes, one file each. An algorithm moves and combines one lane's share of an op. The
// engine fills the memory before (this node's combined contribution) and distributes the result afterwards.
//
// Requires: all nodes of the lane call the same algorithm with memory of the same shape. Blocks are one
// extent list per node, in node order; any may be empty. Ensures: when an algorithm ends, the caller's memory
// has its result and is no longer read or written; sends out of scratch may still be in flight.
#pragma once

#include <functional>
#include <vector>

#include "collectives/link.hpp"
#include "collectives/scan.hpp"
#include "task/task.hpp"

namespace nexar::collectives {

// Afterwards every node has every block combined over all nodes, with the same bits.
Task<> ring_all_reduce(Lane& lane, Vector<Extents> blocks, Arithmetic arithmetic);
Task<> halving_all_reduce(Lane& lane, Extents data, Arithmetic arithmetic);

// The same. Before: `value`, scratch memory of the lane, is this node's contribution; it may be sent, and
// sent again, until the op has ended. `result` is other memory, and is written only.
Task<> doubling_all_reduce(Lane& lane, Extents value, Extents result, Arithmetic arithmetic);

// Afterwards node i has block i combined over all nodes; its other blocks hold partial results.
Task<> ring_reduce_scatter(Lane& lane, Vector<Extents> blocks, Arithmetic arithmetic);

// Before: node i has block i. Afterwards every node has all blocks. `first_phase`, here and below: of its
// phases, where another algorithm has used the ones before.
Task<> ring_all_gather(Lane& lane, Vector<Extents> blocks, uint32_t first_phase = 0);
Task<> bruck_all_gather(Lane& lane, Vector<Extents> blocks);

// outgoing[j] arrives in incoming[i] of node j, where i is this node; both have the same length. The entries
// of this node itself are ignored. No transfer is longer than transfer_bytes_max.
Task<> pairwise_all_to_all(Lane& lane, Vector<Extents> outgoing, Vector<Extents> incoming,
                           size_t transfer_bytes_max, uint32_t first_phase = 0);

// The same for blocks whose lengths only their two ranks know.
struct CountedExchange {
    Vector<Extents> outgoing_counts, incoming_counts;  // by node; the sender's, and memory for a peer's
    Vector<Extents> outgoing, incoming;  // `incoming` has the lengths that this node's ranks expect
    // Whether a node's counts, which have arrived in `counts`, are those of `incoming`. An error ends the
    // algorithm.
    std::function<Result<void>(NodeIndex, const Extents& counts)> check;
    size_t transfer_bytes_max = 0;  // not less than the counts of any two nodes
};
Task<> pairwise_all_to_allv(Lane& lane, CountedExchange exchange);

Task<> binomial_broadcast(Lane& lane, Extents data, NodeIndex root);
Task<> chain_broadcast(Lane& lane, Extents data, NodeIndex root);

// Afterwards the root has the result; the data of all other nodes holds partial results.
Task<> binomial_reduce(Lane& lane, Extents data, NodeIndex root, Arithmetic arithmetic);
Task<> chain_reduce(Lane& lane, Extents data, NodeIndex root, Arithmetic arithmetic);

// Before: node i has block i. Afterwards the root has all blocks. The root's memory has a place for every
// block, a tree's other nodes have one for those of their subtree (BinomialTree::subtree).
Task<> binomial_gather(Lane& lane, Vector<Extents> blocks, NodeIndex root);
Task<> direct_gather(Lane& lane, Vector<Extents> blocks, NodeIndex root, uint32_t first_phase = 0);

// Before: the root has all blocks. Afterwards node i has block i. The memory is that of a gather.
Task<> binomial_scatter(Lane& lane, Vector<Extents> blocks, NodeIndex root);
Task<> direct_scatter(Lane& lane, Vector<Extents> blocks, NodeIndex root);

// One step of a deterministic reduction (rank_tree.hpp), on this node.
struct TreeStep {
    // By node: partials of this node's subtrees, for that node's elements; and memory for what that node's
    // subtrees are for the elements here.
    Vector<Extents> outgoing, incoming;
    std::function<Op&()> combine;  // of what has arrived: the results of the elements here
    size_t transfer_bytes_max = 0;
    uint32_t exchange_phase = 0, gather_phase = 0;
};
// `shares`: by node, the results of its elements.
Task<> tree_reduce_scatter(Lane& lane, TreeStep step);
Task<> tree_all_reduce(Lane& lane, TreeStep step, Vector<Extents> shares);
Task<> tree_reduce(Lane& lane, TreeStep step, Vector<Extents> shares, NodeIndex root);

// Afterwards each rank's output has its reduction; its input is as before, where it is not the output.
Task<> direct_scan(Lane& lane, Scan scan);
Task<> chain_scan(Lane& lane, Scan scan);

Task<> dissemination_barrier(Lane& lane, uint32_t first_phase = 0);

// ring_all_gather; then `gathered`, an error of which ends the algorithm here; then a barrier. So where it
// ends well, every node has had all blocks and no error.
Task<> confirmed_gather(Lane& lane, Vector<Extents> blocks, std::function<Task<>()> gathered);

}  // namespace nexar::collectives
