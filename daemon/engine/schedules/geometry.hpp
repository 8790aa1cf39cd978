// Geometry: the place of one segment of a collective in this node's memory, and the jobs that its schedule
// passes to workers.
#pragma once

#include <vector>

#include "engine/two_level.hpp"

namespace nexar::engine {

// Partial results between nodes are sums, also for avg: each node divides once at the end, and all of them
// divide the same bits. And also for premul_sum: each node has multiplied when it combined its own ranks'
// inputs.
class Geometry {
  public:
    Geometry(const TwoLevelOp& op, uint32_t segment)
        : op_(op),
          segment_(segment),
          range_(collectives::part_of(op.descriptor.count, op.plan.segments, segment)),
          element_bytes_(reduce::size_of(op.descriptor.dtype)) {}

    uint32_t nodes() const { return op_.layout->nodes(); }
    bool alone() const { return nodes() == 1; }
    size_t bytes() const { return range_.count * element_bytes_; }
    collectives::Arithmetic arithmetic() const {
        return {op_.descriptor.dtype, reduce::combining(op_.descriptor.op)};
    }
    bool premultiplies() const { return reduce::has_form(op_.descriptor.op, ReductionForm::scaled); }
    bool divides() const { return reduce::has_form(op_.descriptor.op, ReductionForm::average); }
    // The segment of a side of `count` elements.
    link::Extents rows(const Side& side) const {
        if (side.windows > 0) return {{window(side), bytes()}};
        return {{side.at + range_.begin * element_bytes_, bytes()}};
    }
    // The segment of a rank's own block. With counts the segment is a run of the packed blocks.
    link::Extent own(const Side& side, uint32_t rank) const {
        if (!op_.counts) return rows(side)[0];
        const Counts::Part part = part_of_rank(rank);
        if (part.count == 0 || side.windows > 0) return {window_of(side), part.count * element_bytes_};
        return {side.at + (part.begin - op_.counts->begin(rank)) * element_bytes_,
                part.count * element_bytes_};
    }
    // The segment of one rank's block in a side with a block per rank; in a window they are packed.
    link::Extent block(const Side& side, uint32_t rank) const {
        if (op_.counts) {
            const Counts::Part part = part_of_rank(rank);
            return {rows(side)[0].at + (part.begin - range_.begin) * element_bytes_,
                    part.count * element_bytes_};
        }
        if (side.windows > 0) return {window(side) + rank * bytes(), bytes()};
        return {side.at + (side.blocks.of(rank).begin + range_.begin) * element_bytes_, bytes()};
    }
    // Of the blocks of a node's ranks.
    size_t block_bytes_on(collectives::NodeIndex node) const {
        if (!op_.counts) return op_.layout->ranks_on(node).size() * bytes();
        size_t out = 0;
        for (const uint32_t rank : op_.layout->ranks_on(node))
            out += part_of_rank(rank).count * element_bytes_;
        return out;
    }
    link::Extents blocks(const Side& side) const {
        link::Extents out;
        for (uint32_t rank = 0; rank < op_.layout->size(); ++rank) out.push_back(block(side, rank));
        return out;
    }
    // One contiguous buffer for the segment of all blocks, and the blocks in it.
    size_t packed_bytes() const { return op_.counts ? bytes() : bytes() * op_.layout->size(); }
    link::Extents packed(Place at) const {
        link::Extents out;
        for (uint32_t rank = 0; rank < op_.layout->size(); ++rank) {
            const size_t block = op_.counts ? part_of_rank(rank).count * element_bytes_ : bytes();
            out.push_back({at, block});
            at += block;
        }
        return out;
    }
    // The extents of one node's ranks, out of a list with one extent per rank.
    link::Extents of_node(const link::Extents& by_rank, uint32_t node) const {
        link::Extents out;
        for (uint32_t rank : op_.layout->ranks_on(collectives::NodeIndex(node))) out.push_back(by_rank[rank]);
        return out;
    }
    Vector<link::Extents> by_node(const link::Extents& by_rank) const {
        Vector<link::Extents> out;
        for (uint32_t node = 0; node < nodes(); ++node) out.push_back(of_node(by_rank, node));
        return out;
    }
    // One contiguous buffer of the segment's size, cut into a part per node.
    Vector<link::Extents> parts(Place at) const {
        Vector<link::Extents> out;
        for (uint32_t node = 0; node < nodes(); ++node) {
            const collectives::ElementRange part = collectives::part_of(range_.count, nodes(), node);
            out.push_back({{at + part.begin * element_bytes_, part.count * element_bytes_}});
        }
        return out;
    }

    // The inputs of this node's ranks, in their order. Without dsts: an empty job.
    WorkerJob combine(Vector<link::Extents> dsts, Vector<link::Extents> srcs) const {
        WorkerJob job = empty(premultiplies() ? WorkerJob::Kind::premul_sum : WorkerJob::Kind::reduce);
        if (premultiplies())
            for (const LocalBuffers& local : op_.locals) job.scalars.push_back(local.scalar);
        else if (srcs.size() == 1 && !reduces_alone())
            return copy(std::move(dsts), std::move(srcs[0]));
        job.dsts = std::move(dsts);
        job.srcs = std::move(srcs);
        return job;
    }
    WorkerJob copy(Vector<link::Extents> dsts, link::Extents src) const {
        WorkerJob job = empty(WorkerJob::Kind::copy);
        std::erase_if(dsts, [&](const link::Extents& dst) { return same(dst, src); });
        job.dsts = std::move(dsts);
        job.srcs.push_back(std::move(src));
        return job;
    }
    WorkerJob finish(Vector<link::Extents> results) const {
        return finish(std::move(results), op_.layout->size());
    }
    // `ranks`: how many the results are of.
    WorkerJob finish(Vector<link::Extents> results, uint32_t ranks) const {
        WorkerJob job = empty(WorkerJob::Kind::finish_avg);
        job.divisor = ranks;
        if (divides()) job.dsts = std::move(results);
        return job;
    }
    // What an exclusive scan gives rank 0, before which there is none.
    WorkerJob identity(link::Extents result) const {
        WorkerJob job = empty(WorkerJob::Kind::identity);
        job.dsts.push_back(std::move(result));
        return job;
    }

  private:
    // What a combination with another rank's input would do to it, nothing does to the only one.
    bool reduces_alone() const {
        return op_.layout->size() == 1 && reduce::is_logical(op_.descriptor.dtype, op_.descriptor.op);
    }
    Counts::Part part_of_rank(uint32_t rank) const {
        return op_.counts->part(rank, range_.begin, range_.begin + range_.count);
    }
    Place window(const Side& side) const { return side.at + segment_ % side.windows * side.stride; }
    Place window_of(const Side& side) const { return side.windows > 0 ? window(side) : side.at; }
    static bool same(const link::Extents& a, const link::Extents& b) {
        if (a.size() != b.size()) return false;
        for (size_t i = 0; i < a.size(); ++i)
            if (!a[i].at.same(b[i].at)) return false;
        return true;
    }
    WorkerJob empty(WorkerJob::Kind kind) const {
        WorkerJob job;
        job.kind = kind;
        job.dtype = op_.descriptor.dtype;
        job.op = arithmetic().op;
        return job;
    }

    const TwoLevelOp& op_;
    uint32_t segment_;
    collectives::ElementRange range_;
    size_t element_bytes_;
};

}  // namespace nexar::engine
