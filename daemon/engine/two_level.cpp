#include "engine/two_level.hpp"

#include "collectives/algorithms.hpp"

namespace nexar::engine {
namespace {

using collectives::Algorithm;
using collectives::Arithmetic;
using collectives::ElementRange;
using collectives::NodeIndex;
using link::Extents;

// Where things lie. Partial results between nodes are sums, also for avg: it is divided once, at the end, by
// each node for itself; that is the same division of the same bits everywhere.
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
    Arithmetic arithmetic() const {
        const ReduceOp op = op_.descriptor.op == ReduceOp::avg ? ReduceOp::sum : op_.descriptor.op;
        return {op_.descriptor.dtype, op};
    }
    // The segment of a side of `count` elements.
    Extents rows(const Side& side) const {
        if (side.windows > 0) return {{window(side), bytes()}};
        return {{side.data + range_.begin * element_bytes_, bytes()}};
    }
    // The segment of one rank's block in a side with a block per rank; in a window they are packed.
    link::Extent block(const Side& side, uint32_t rank) const {
        if (side.windows > 0) return {window(side) + rank * bytes(), bytes()};
        return {side.data + (rank * op_.descriptor.count + range_.begin) * element_bytes_, bytes()};
    }
    Extents blocks(const Side& side) const {
        Extents out;
        for (uint32_t rank = 0; rank < op_.layout->size(); ++rank) out.push_back(block(side, rank));
        return out;
    }
    // Those of one node's ranks, of a list with one extent per rank.
    Extents of_node(const Extents& by_rank, uint32_t node) const {
        Extents out;
        for (uint32_t rank : op_.layout->ranks_on(NodeIndex(node))) out.push_back(by_rank[rank]);
        return out;
    }
    std::vector<Extents> by_node(const Extents& by_rank) const {
        std::vector<Extents> out;
        for (uint32_t node = 0; node < nodes(); ++node) out.push_back(of_node(by_rank, node));
        return out;
    }
    // One contiguous buffer of the segment's size, cut into a part per node.
    std::vector<Extents> parts(std::byte* data) const {
        std::vector<Extents> out;
        for (uint32_t node = 0; node < nodes(); ++node) {
            const ElementRange part = collectives::part_of(range_.count, nodes(), node);
            out.push_back({{data + part.begin * element_bytes_, part.count * element_bytes_}});
        }
        return out;
    }

    // No dsts: nothing to do.
    WorkerJob combine(std::vector<Extents> dsts, std::vector<Extents> srcs) const {
        WorkerJob job = empty(WorkerJob::Kind::reduce);
        if (srcs.size() == 1) return copy(std::move(dsts), std::move(srcs[0]));
        job.dsts = std::move(dsts);
        job.srcs = std::move(srcs);
        return job;
    }
    WorkerJob copy(std::vector<Extents> dsts, Extents src) const {
        WorkerJob job = empty(WorkerJob::Kind::copy);
        std::erase_if(dsts, [&](const Extents& dst) { return same(dst, src); });
        job.dsts = std::move(dsts);
        job.srcs = {std::move(src)};
        return job;
    }
    WorkerJob finish(std::vector<Extents> results) const {
        WorkerJob job = empty(WorkerJob::Kind::finish_avg);
        job.divisor = op_.layout->size();
        if (op_.descriptor.op == ReduceOp::avg) job.dsts = std::move(results);
        return job;
    }

  private:
    std::byte* window(const Side& side) const { return side.data + segment_ % side.windows * side.stride; }
    static bool same(const Extents& a, const Extents& b) {
        if (a.size() != b.size()) return false;
        for (size_t i = 0; i < a.size(); ++i)
            if (a[i].data != b[i].data) return false;
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
    ElementRange range_;
    size_t element_bytes_;
};

Task<> all_reduce(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    std::vector<Extents> ins, outs;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.rows(local.in));
        outs.push_back(at.rows(local.out));
    }
    const Extents accumulator = outs[0];
    std::vector<Extents> results = outs;
    if (!at.alone()) results.resize(1);

    co_await done(lane.job(at.combine(results, std::move(ins))));
    if (op.plan.algorithm == Algorithm::doubling_all_reduce)
        co_await collectives::doubling_all_reduce(lane, accumulator, at.arithmetic());
    else if (op.plan.algorithm == Algorithm::ring_all_reduce)
        co_await collectives::ring_all_reduce(lane, at.parts(accumulator[0].data), at.arithmetic());
    co_await done(lane.job(at.finish(std::move(results))));
    if (!at.alone()) co_await done(lane.job(at.copy(std::move(outs), accumulator)));
    co_return ok();
}

Task<> reduce(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const NodeIndex root = op.layout->node_of(op.descriptor.root);
    std::vector<Extents> ins, results;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.rows(local.in));
        if (local.rank == op.descriptor.root) results.push_back(at.rows(local.out));
    }
    if (results.empty()) {
        const auto memory = lane.scratch(at.bytes());
        results.push_back({{memory.data(), memory.size()}});
    }
    const Extents accumulator = results[0];

    co_await done(lane.job(at.combine(results, std::move(ins))));
    if (op.plan.algorithm == Algorithm::binomial_reduce)
        co_await collectives::binomial_reduce(lane, accumulator, root, at.arithmetic());
    else if (op.plan.algorithm == Algorithm::chain_reduce)
        co_await collectives::chain_reduce(lane, accumulator, root, at.arithmetic());
    if (op.self == root) co_await done(lane.job(at.finish(std::move(results))));
    co_return ok();
}

Task<> broadcast(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const NodeIndex root = op.layout->node_of(op.descriptor.root);
    std::vector<Extents> outs;
    Extents source;
    for (const LocalBuffers& local : op.locals) {
        if (local.rank == op.descriptor.root) source = at.rows(local.in);
        if (local.out.data != nullptr) outs.push_back(at.rows(local.out));
    }
    // At the root's node, handing out and sending both only read, so they run side by side.
    Op* handed_out = nullptr;
    if (op.self == root)
        handed_out = &lane.job(at.copy(outs, source));
    else
        source = outs[0];

    if (op.plan.algorithm == Algorithm::binomial_broadcast)
        co_await collectives::binomial_broadcast(lane, source, root);
    else if (op.plan.algorithm == Algorithm::chain_broadcast)
        co_await collectives::chain_broadcast(lane, source, root);
    if (handed_out == nullptr) handed_out = &lane.job(at.copy(std::move(outs), source));
    co_await done(*handed_out);
    co_return ok();
}

Task<> all_gather(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    Extents ins;
    std::vector<Extents> outs, local_blocks;
    for (const LocalBuffers& local : op.locals) {
        const Extents in = at.rows(local.in);
        ins.push_back(in[0]);
        outs.push_back(at.blocks(local.out));
        local_blocks.push_back(at.of_node(outs.back(), op.self.value));
    }
    const Extents gathered = outs[0];
    if (!at.alone()) local_blocks.resize(1);

    co_await done(lane.job(at.copy(std::move(local_blocks), std::move(ins))));
    if (at.alone()) co_return ok();
    co_await collectives::ring_all_gather(lane, at.by_node(gathered));
    co_await done(lane.job(at.copy(std::move(outs), gathered)));
    co_return ok();
}

Task<> reduce_scatter(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    std::vector<Extents> ins;
    Extents outs;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.blocks(local.in));
        const Extents out = at.rows(local.out);
        outs.push_back(out[0]);
    }
    std::vector<Extents> results{outs};
    if (at.alone()) {
        co_await done(lane.job(at.combine(results, std::move(ins))));
        co_await done(lane.job(at.finish(std::move(results))));
        co_return ok();
    }
    // The accumulator has a block for every rank; only this node's own end up whole.
    const auto memory = lane.scratch(at.bytes() * op.layout->size());
    Extents partial;
    for (uint32_t rank = 0; rank < op.layout->size(); ++rank)
        partial.push_back({memory.data() + rank * at.bytes(), at.bytes()});
    std::vector<Extents> accumulator{partial};

    co_await done(lane.job(at.combine(std::move(accumulator), std::move(ins))));
    co_await collectives::ring_reduce_scatter(lane, at.by_node(partial), at.arithmetic());
    co_await done(lane.job(at.copy(results, at.of_node(partial, op.self.value))));
    co_await done(lane.job(at.finish(std::move(results))));
    co_return ok();
}

}  // namespace

Task<> run_segment(MeshLane& lane, const TwoLevelOp& op, uint32_t index) {
    const Geometry at(op, index);
    if (op.plan.algorithm == Algorithm::dissemination_barrier)
        return collectives::dissemination_barrier(lane);
    switch (op.descriptor.kind) {
        case OpKind::all_reduce:
            return all_reduce(lane, op, at);
        case OpKind::reduce:
            return reduce(lane, op, at);
        case OpKind::broadcast:
            return broadcast(lane, op, at);
        case OpKind::all_gather:
            return all_gather(lane, op, at);
        case OpKind::reduce_scatter:
            return reduce_scatter(lane, op, at);
        default:
            return collectives::dissemination_barrier(lane);  // one node: ends at once
    }
}

}  // namespace nexar::engine
