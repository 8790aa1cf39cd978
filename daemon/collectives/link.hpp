// Lane: the verbs, an algorithm's only interface. An algorithm is a coroutine over them and runs between
// NODES; the engine moves data between the ranks of one node.
//
// Posting does not send: the verbs that an algorithm posts before it next suspends leave as one batch,
// receives first, so that the whole receive schedule reaches each peer in one frame. Owner: the Lane owns the
// Op that a verb returns.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "link/transfer.hpp"
#include "task/op.hpp"

namespace nexar::collectives {

using link::Extents;

// Position of a node among the nodes of a group (0 .. nodes-1); not a Rank and not a PeerIndex.
using NodeIndex = Id<struct NodeIndexTag, uint32_t>;

struct Arithmetic {
    Dtype dtype;
    ReduceOp op;
};

// One lane of one op: its own range of phase numbers, its own share of the elements, one shard.
// Phases are relative to the lane; a phase is used once per (from, to) pair.
class Lane {
  public:
    virtual NodeIndex self() const = 0;
    virtual uint32_t nodes() const = 0;

    // The Op completes when every chunk was applied.
    virtual Op& recv_copy(NodeIndex from, uint32_t phase, Extents into) = 0;
    virtual Op& recv_reduce(NodeIndex from, uint32_t phase, Extents into, Arithmetic arithmetic) = 0;
    // The Op completes when every chunk was acknowledged, so the memory may be overwritten.
    virtual Op& send(NodeIndex to, uint32_t phase, Extents from) = 0;
    // Composite: each chunk is applied and then forwarded to `to`. The Op completes when both the receive and
    // the forward are complete.
    virtual Op& recv_copy_send(NodeIndex from, NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                               Extents memory) = 0;
    virtual Op& recv_reduce_send(NodeIndex from, NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                                 Extents memory, Arithmetic arithmetic) = 0;
    // What was posted since the task was resumed last is awaited together: while not all of it has ended, the
    // end of a part is no reason to wake the task's thread. A hint.
    virtual void await_together() {}
    // Scratch memory of this op, freed when the op has ended (not when the coroutine ends).
    virtual link::Extent scratch(size_t bytes) = 0;
    // dsts = srcs[0] op srcs[1] op ..., in this order; a dst may be one of srcs. `scalars`: empty, or one for
    // each of srcs, with which it is multiplied first; the operator is sum then. A worker computes it unless
    // it is small.
    virtual Op& combine(Vector<Extents> dsts, Vector<Extents> srcs, Arithmetic arithmetic,
                        Vector<uint64_t> scalars) = 0;
    virtual Op& copy(Extents dst, Extents src) = 0;
    // dst = dst op src.
    Op& reduce(Extents dst, Extents src, Arithmetic arithmetic) {
        return combine({dst}, {dst, std::move(src)}, arithmetic, {});
    }

  protected:
    ~Lane() = default;
};

}  // namespace nexar::collectives
