// What an algorithm may know: the verbs. An algorithm is a coroutine over these (one file each), and runs
// between NODES; what happens between the ranks of one node is the engine's. Every verb returns an Op that
// the Lane owns.
//
// Posting does not send: what an algorithm posts before it next suspends leaves as one batch, receives first,
// so that the whole receive schedule reaches each peer in one frame.
#pragma once

#include <cstdint>
#include <span>

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

    // done: every chunk was applied.
    virtual Op& recv_copy(NodeIndex from, uint32_t phase, Extents into) = 0;
    virtual Op& recv_reduce(NodeIndex from, uint32_t phase, Extents into, Arithmetic arithmetic) = 0;
    // done: every chunk was acknowledged, so the memory may be overwritten.
    virtual Op& send(NodeIndex to, uint32_t phase, Extents from) = 0;
    // Composite: what arrives is applied, and each chunk goes on to `to` as soon as it was. Two Ops end it:
    // the returned one ends when both the receive and the forward are over.
    virtual Op& recv_copy_send(NodeIndex from, NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                               Extents memory) = 0;
    virtual Op& recv_reduce_send(NodeIndex from, NodeIndex to, uint32_t phase_in, uint32_t phase_out,
                                 Extents memory, Arithmetic arithmetic) = 0;
    // Scratch memory of this op, freed when the op is over (not when the coroutine ends).
    virtual std::span<std::byte> scratch(size_t bytes) = 0;
    // dst = dst op src, on a worker for anything that is not small.
    virtual Op& reduce(Extents dst, Extents src, Arithmetic arithmetic) = 0;
    virtual Op& copy(Extents dst, Extents src) = 0;

  protected:
    ~Lane() = default;
};

}  // namespace nexar::collectives
