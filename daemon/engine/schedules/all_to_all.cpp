// all_to_all. The blocks from all ranks of one node to all ranks of another are one list, from the inputs
// into the outputs; workers copy the blocks between ranks of this node. Short blocks are packed in scratch
// memory, and inputs that share memory with an output are copied there first.
//
// Scratch: the segment of all local inputs, and packed as much again; on one node, where an operation is one
// segment however long, part_bytes_max.
#include <algorithm>

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {
namespace {

using collectives::NodeIndex;
using link::Extents;
using Lists = Vector<Extents>;  // by node

constexpr size_t packed_below = 4096;           // bytes of a block
constexpr size_t part_bytes_max = 1024 * 1024;  // of scratch

// The same run of bytes of every block.
struct Run {
    size_t begin = 0, bytes = 0;
    link::Extent of(link::Extent block) const { return {block.at + begin, bytes}; }
};

// The blocks that a node's ranks receive from this node's ranks, source by source; the reverse direction has
// the same order.
Lists outgoing(const TwoLevelOp& op, const Geometry& at, Run run) {
    Lists out(at.nodes());
    for (uint32_t node = 0; node < at.nodes(); ++node)
        for (const LocalBuffers& local : op.locals)
            for (const uint32_t to : op.layout->ranks_on(NodeIndex(node)))
                out[node].push_back(run.of(at.block(local.in, to)));
    return out;
}
Lists incoming(const TwoLevelOp& op, const Geometry& at, Run run) {
    Lists out(at.nodes());
    for (uint32_t node = 0; node < at.nodes(); ++node)
        for (const uint32_t from : op.layout->ranks_on(NodeIndex(node)))
            for (const LocalBuffers& local : op.locals)
                out[node].push_back(run.of(at.block(local.out, from)));
    return out;
}

bool shares_memory(const TwoLevelOp& op, const Geometry& at) {
    return std::ranges::any_of(op.locals, [&](const LocalBuffers& local) {
        return at.block(local.in, 0).at.same(at.block(local.out, 0).at);
    });
}

Extents joined(const Lists& lists) {
    Extents out;
    for (const Extents& list : lists) out.insert(out.end(), list.begin(), list.end());
    return out;
}

// The same number of bytes for each node, one after the other.
Lists laid_out(Place memory, const Lists& like) {
    Lists out;
    for (const Extents& list : like) {
        out.push_back({{memory, link::bytes_of(list)}});
        memory += link::bytes_of(list);
    }
    return out;
}

// What a segment takes through scratch memory.
struct Packing {
    bool packed;    // blocks are packed for the way between nodes
    bool gathered;  // inputs are copied to scratch memory first
    size_t blocks;  // of all local inputs
    size_t step;    // bytes of each block at a time

    Packing(const TwoLevelOp& op, const Geometry& at)
        : packed(!at.alone() && at.bytes() < packed_below && op.layout->size() > at.nodes()),
          gathered(packed || shares_memory(op, at)),
          blocks(op.locals.size() * op.layout->size()),
          step(at.bytes()) {
        const size_t element = reduce::size_of(op.descriptor.dtype);
        if (at.alone() && gathered)
            step = std::min(step, std::max<size_t>(1, part_bytes_max / blocks / element) * element);
    }
};

// `scratch`: null, or room for the run of all local inputs.
Task<> exchange(MeshLane& lane, const TwoLevelOp& op, Geometry at, Run run, Place scratch, bool packed) {
    Lists from = outgoing(op, at, run), to = incoming(op, at, run);
    if (scratch) {
        Lists gathered = laid_out(scratch, from);
        Lists dsts(1, joined(gathered));
        co_await done(lane.job(at.copy(std::move(dsts), joined(from))));
        from = std::move(gathered);
    }
    Lists own(1, to[op.self.value]);
    Op& local = lane.job(at.copy(std::move(own), from[op.self.value]));
    if (!at.alone()) {
        to[op.self.value].clear();
        Lists arriving = to;
        if (packed) arriving = laid_out(lane.scratch(link::bytes_of(joined(to))).at, to);
        const size_t transfer_bytes_max = size_t{link::transfer_chunks_max} * op.plan.chunk_bytes;
        co_await collectives::pairwise_all_to_all(lane, std::move(from), arriving, transfer_bytes_max);
        Lists places(1, joined(to));
        if (packed) co_await done(lane.job(at.copy(std::move(places), joined(arriving))));
    }
    co_await done(local);
    co_return ok();
}

}  // namespace

// The inputs, and as much again for what arrives.
uint64_t all_to_all_scratch(const TwoLevelOp& op, const Geometry& at) {
    if (at.bytes() == 0) return 0;
    const Packing packing(op, at);
    const uint64_t bytes = ScratchPool::rounded(packing.step * packing.blocks);
    return (packing.gathered ? bytes : 0) + (packing.packed ? bytes : 0);
}

Task<> all_to_all_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const size_t block = at.bytes();
    if (block == 0) co_return ok();
    const Packing packing(op, at);
    const Place scratch = packing.gathered ? lane.scratch(packing.step * packing.blocks).at : Place{};
    for (size_t begin = 0; begin < block; begin += packing.step) {
        const Run run{begin, std::min(packing.step, block - begin)};
        co_await exchange(lane, op, at, run, scratch, packing.packed);
    }
    co_return ok();
}

}  // namespace nexar::engine
