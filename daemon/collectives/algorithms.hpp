// The algorithms between nodes, one file each. They move and combine one lane's share of an op; what is in
// the memory before (this node's combined contribution) and what becomes of it afterwards is the engine's.
//
// All nodes of the lane call the same algorithm with memory of the same shape. Blocks are one extent list per
// node, in node order; any may be empty. An algorithm ends when the caller's memory has its result and is no
// longer read or written; sends out of scratch may still be under way then.
#pragma once

#include <vector>

#include "collectives/link.hpp"
#include "task/task.hpp"

namespace nexar::collectives {

// Afterwards every node has every block combined over all nodes, with the same bits.
Task<> ring_all_reduce(Lane& lane, std::vector<Extents> blocks, Arithmetic arithmetic);
Task<> doubling_all_reduce(Lane& lane, Extents data, Arithmetic arithmetic);

// Afterwards node i has block i combined over all nodes; its other blocks hold partial results.
Task<> ring_reduce_scatter(Lane& lane, std::vector<Extents> blocks, Arithmetic arithmetic);

// Before: node i has block i. Afterwards every node has all blocks.
Task<> ring_all_gather(Lane& lane, std::vector<Extents> blocks);

// outgoing[j] arrives in incoming[i] of node j, where i is this node; both have the same bytes. Those of this
// node itself are not looked at. No transfer is longer than transfer_bytes_max.
Task<> pairwise_all_to_all(Lane& lane, std::vector<Extents> outgoing, std::vector<Extents> incoming,
                           size_t transfer_bytes_max);

Task<> binomial_broadcast(Lane& lane, Extents data, NodeIndex root);
Task<> chain_broadcast(Lane& lane, Extents data, NodeIndex root);

// Afterwards the root has the result; the others' data holds partial results.
Task<> binomial_reduce(Lane& lane, Extents data, NodeIndex root, Arithmetic arithmetic);
Task<> chain_reduce(Lane& lane, Extents data, NodeIndex root, Arithmetic arithmetic);

Task<> dissemination_barrier(Lane& lane);

}  // namespace nexar::collectives
