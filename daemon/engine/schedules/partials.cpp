#include "engine/schedules/partials.hpp"

#include <algorithm>
#include <bit>

#include "collectives/extents.hpp"
#include "collectives/rank_tree.hpp"
#include "collectives/tree.hpp"

namespace nexar::engine {
namespace {

using collectives::Algorithm;
using collectives::Arithmetic;
using collectives::ElementRange;
using collectives::NodeIndex;
using collectives::TreeCut;
using link::Extents;
using reduce::RankRange;
using Source = WorkerJob::Source;

bool scatters(const TwoLevelOp& op) {
    return op.descriptor.kind == OpKind::reduce_scatter || op.descriptor.kind == OpKind::reduce_scatterv;
}

// What all steps of a segment share. Positions are in the segment's elements, with those of all blocks.
struct Work {
    const TwoLevelOp& op;
    const Geometry& at;
    size_t value, partial;  // bytes of an element
    uint64_t elements;      // of the segment
    Vector<Extents> ins;    // of the ranks here
    Vector<Extents> outs;   // results of the whole segment, or (scattering) one list of this node's
    bool is_root = false;   // a reduce's root is here

    Work(const TwoLevelOp& o, const Geometry& geometry)
        : op(o),
          at(geometry),
          value(reduce::size_of(o.descriptor.dtype)),
          partial(partial_bytes(value, o.descriptor.partials)),
          elements(scatters(o) ? geometry.packed_bytes() / value : geometry.bytes() / value) {
        if (scatters(op)) outs.emplace_back();
        for (const LocalBuffers& local : op.locals) {
            ins.push_back(scatters(op) ? at.blocks(local.in) : at.rows(local.in));
            if (scatters(op)) outs[0].push_back(at.own(local.out, local.rank));
            const bool has_result = op.descriptor.kind == OpKind::all_reduce ||
                                    (!scatters(op) && local.rank == op.descriptor.root);
            if (has_result) outs.push_back(at.rows(local.out));
            is_root |= op.descriptor.kind == OpKind::reduce && local.rank == op.descriptor.root;
        }
    }

    uint64_t divisor() const { return at.divides() ? op.layout->size() : 0; }
    bool is_tree() const { return op.descriptor.partials == Partials::tree; }
    bool premultiplies() const { return at.premultiplies(); }

    WorkerJob job(Vector<Extents> dsts, Vector<Extents> srcs, Vector<Source> sources) const {
        WorkerJob out;
        out.kind = WorkerJob::Kind::partials;
        out.dtype = op.descriptor.dtype;
        out.op = at.arithmetic().op;
        out.divisor = 0;
        out.tree_ranks = is_tree() ? op.layout->size() : 0;
        out.dsts = std::move(dsts);
        out.srcs = std::move(srcs);
        out.sources = std::move(sources);
        return out;
    }
    // Of the ranks of this node in a range: a partial, or (to_partial false) the operation's result.
    WorkerJob combine(Vector<Extents> dsts, RankRange range, ElementRange run) const {
        Vector<Extents> srcs;
        Vector<Source> sources;
        Vector<uint64_t> scalars;
        for (size_t i = 0; i < op.locals.size(); ++i) {
            const uint32_t rank = op.locals[i].rank;
            if (rank < range.begin || rank >= range.end) continue;
            srcs.push_back(collectives::slice(ins[i], run.begin * value, run.count * value));
            sources.push_back({{rank, rank + 1}, false});
            scalars.push_back(op.locals[i].scalar);
        }
        WorkerJob out = job(std::move(dsts), std::move(srcs), std::move(sources));
        if (premultiplies()) out.scalars = std::move(scalars);
        return out;
    }
};

Task<> alone(MeshLane& lane, const Work& work) {
    WorkerJob job = work.combine(work.outs, {0, work.op.layout->size()}, {0, work.elements});
    job.divisor = work.divisor();
    co_await done(lane.job(std::move(job)));
    co_return ok();
}

// ---- along the tree ----

TreeCut cut_of(const Work& work) {
    const uint32_t nodes = work.at.nodes();
    const uint32_t gather = scatters(work.op) ? 0 : work.op.descriptor.kind == OpKind::reduce ? 1 : nodes - 1;
    Vector<uint64_t> owned;
    for (uint32_t node = 0; scatters(work.op) && node < nodes; ++node)
        owned.push_back(work.at.block_bytes_on(NodeIndex(node)) / work.value);
    return TreeCut(*work.op.layout, work.elements, static_cast<uint32_t>(work.partial),
                   work.op.plan.chunk_bytes, gather, owned);
}

// By node: the runs of a step whose results it owns.
Vector<Vector<ElementRange>> owned(const Work& work, ElementRange step) {
    Vector<Vector<ElementRange>> out(work.at.nodes());
    if (!scatters(work.op)) {
        for (uint32_t node = 0; node < work.at.nodes(); ++node)
            out[node].push_back(collectives::even_share(step, work.at.nodes(), node));
        return out;
    }
    uint64_t begin = 0;
    const Extents blocks = work.at.packed(Place{});
    for (uint32_t rank = 0; rank < blocks.size(); ++rank) {
        const uint64_t end = begin + blocks[rank].bytes / work.value;
        const uint64_t first = std::max(begin, step.begin), last = std::min(end, step.begin + step.count);
        if (first < last) out[work.op.layout->node_of(rank).value].push_back({first, last - first});
        begin = end;
    }
    return out;
}

uint64_t count_of(const Vector<ElementRange>& runs) {
    uint64_t out = 0;
    for (const ElementRange& run : runs) out += run.count;
    return out;
}

// The runs of a list that begins with element `begin`.
void add_runs(Extents& to, const Extents& list, const Vector<ElementRange>& runs, uint64_t begin,
              size_t width) {
    for (const ElementRange& run : runs) {
        const Extents part = collectives::slice(list, (run.begin - begin) * width, run.count * width);
        to.insert(to.end(), part.begin(), part.end());
    }
}

// The memory of a segment's steps, one after the other.
struct TreeMemory {
    Place partials, incoming, share;
};

// A rank's values are its partial where the type is its own partial, and nothing is done to them.
bool sends_values(const Work& work, RankRange range) {
    return range.end - range.begin == 1 && work.value == work.partial && !work.premultiplies();
}

class Step {
  public:
    Step(MeshLane& lane, const Work& work, const TreeMemory& memory, ElementRange step)
        : lane_(lane), work_(work), memory_(memory), step_(step), owned_(owned(work, step)) {}

    // The partials of this node's subtrees, as they lie then.
    Task<> make_partials() {
        Vector<Op*> jobs;
        Place next = memory_.partials;
        for (const RankRange range : work_.op.layout->subtrees_on(work_.op.self)) {
            if (sends_values(work_, range)) {
                add(range, work_.combine({}, range, step_).srcs[0]);
                continue;
            }
            const Extents to{{next, step_.count * work_.partial}};
            next += step_.count * work_.partial;
            WorkerJob job = work_.combine({to}, range, step_);
            job.to_partial = true;
            jobs.push_back(&lane_.job(std::move(job)));
            add(range, to);
        }
        co_await all(jobs);
        co_return ok();
    }

    collectives::TreeStep exchange(const TreeCut& cut, uint32_t index) {
        collectives::TreeStep out;
        out.transfer_bytes_max = size_t{link::transfer_chunks_max} * work_.op.plan.chunk_bytes;
        out.exchange_phase = cut.exchange_phase(index);
        out.gather_phase = cut.gather_phase(index);
        out.outgoing.resize(owned_.size());
        out.incoming.resize(owned_.size());
        Place next = memory_.incoming;
        const uint64_t bytes = count_of(owned_[self()]) * work_.partial;
        for (uint32_t node = 0; node < owned_.size(); ++node) {
            for (const Extents& partial : partials_)
                add_runs(out.outgoing[node], partial, owned_[node], step_.begin, work_.partial);
            if (node == self()) {
                add_own_roots();
                out.outgoing[node].clear();
                continue;
            }
            for (const RankRange range : work_.op.layout->subtrees_on(NodeIndex(node))) {
                out.incoming[node].push_back({next, bytes});
                roots_.push_back({range, {{next, bytes}}});
                next += bytes;
            }
        }
        out.combine = [this]() -> Op& { return combine(); };
        return out;
    }

    // By node: where its results are here.
    Vector<Extents> shares() const {
        Vector<Extents> out(owned_.size());
        for (uint32_t node = 0; node < owned_.size(); ++node)
            if (!work_.outs.empty())
                add_runs(out[node], work_.outs[0], owned_[node], 0, work_.value);
            else if (node == self())
                out[node] = {{memory_.share, count_of(owned_[node]) * work_.value}};
        return out;
    }

  private:
    struct Root {
        RankRange range;
        Extents memory;
    };

    uint32_t self() const { return work_.op.self.value; }
    void add(RankRange range, Extents partial) {
        ranges_.push_back(range);
        partials_.push_back(std::move(partial));
    }
    void add_own_roots() {
        for (size_t i = 0; i < partials_.size(); ++i) {
            roots_.push_back({ranges_[i], {}});
            add_runs(roots_.back().memory, partials_[i], owned_[self()], step_.begin, work_.partial);
        }
    }
    // The list of this node's blocks has no other elements.
    Extents own_result() const {
        if (!scatters(work_.op)) return shares()[self()];
        const auto earlier = owned(work_, {0, step_.begin});
        const uint64_t before = count_of(earlier[self()]);
        return collectives::slice(work_.outs[0], before * work_.value,
                                  count_of(owned_[self()]) * work_.value);
    }
    Op& combine() {
        std::ranges::sort(roots_, {}, [](const Root& root) { return root.range.begin; });
        Vector<Extents> srcs;
        Vector<Source> sources;
        for (Root& root : roots_) {
            srcs.push_back(std::move(root.memory));
            sources.push_back({root.range, true});
        }
        Vector<Extents> dsts(1, own_result());
        WorkerJob job = work_.job(std::move(dsts), std::move(srcs), std::move(sources));
        job.divisor = work_.divisor();
        return lane_.job(std::move(job));
    }

    MeshLane& lane_;
    const Work& work_;
    TreeMemory memory_;
    ElementRange step_;
    Vector<Vector<ElementRange>> owned_;  // by node
    Vector<RankRange> ranges_;            // of this node's subtrees
    Vector<Extents> partials_;            // of each of them: the step's elements
    Vector<Root> roots_;                  // of all nodes: the elements here
};

// The longest step's; where nothing is needed, nothing.
struct TreeRoom {
    size_t partials = 0, incoming = 0, share = 0;

    TreeRoom(const Work& work, const TreeCut& cut) {
        const auto here = work.op.layout->subtrees_on(work.op.self);
        const size_t elsewhere = work.op.layout->subtrees() - here.size();
        const auto made_here = static_cast<size_t>(
            std::ranges::count_if(here, [&](RankRange range) { return !sends_values(work, range); }));
        for (uint32_t step = 0; step < cut.steps(); ++step) {
            const ElementRange range = cut.step(step);
            const uint64_t own = count_of(owned(work, range)[work.op.self.value]);
            partials = std::max(partials, made_here * range.count * work.partial);
            incoming = std::max(incoming, elsewhere * own * work.partial);
            if (work.outs.empty()) share = std::max<size_t>(share, own * work.value);
        }
    }
    uint64_t bytes() const {
        return ScratchPool::rounded(partials) + ScratchPool::rounded(incoming) + ScratchPool::rounded(share);
    }
};

Task<> along_tree(MeshLane& lane, const Work& work) {
    const TreeCut cut = cut_of(work);
    const TreeRoom room(work, cut);
    TreeMemory memory;
    if (room.partials > 0) memory.partials = lane.scratch(room.partials).at;
    if (room.incoming > 0) memory.incoming = lane.scratch(room.incoming).at;
    if (room.share > 0) memory.share = lane.scratch(room.share).at;
    const NodeIndex root = work.op.layout->node_of(work.op.descriptor.root);
    for (uint32_t index = 0; index < cut.steps(); ++index) {
        Step step(lane, work, memory, cut.step(index));
        co_await step.make_partials();
        collectives::TreeStep exchange = step.exchange(cut, index);
        if (scatters(work.op))
            co_await collectives::tree_reduce_scatter(lane, std::move(exchange));
        else if (work.op.descriptor.kind == OpKind::reduce)
            co_await collectives::tree_reduce(lane, std::move(exchange), step.shares(), root);
        else
            co_await collectives::tree_all_reduce(lane, std::move(exchange), step.shares());
    }
    if (work.op.descriptor.kind != OpKind::all_reduce) co_return ok();
    Vector<Extents> others = work.outs;
    co_await done(lane.job(work.at.copy(std::move(others), work.outs[0])));
    co_return ok();
}

// ---- wide ----

// By node: its part of the segment's f32.
Vector<Extents> wide_parts(const Work& work, Place memory) {
    Vector<Extents> out(work.at.nodes());
    const auto runs = owned(work, {0, work.elements});
    for (uint32_t node = 0; node < work.at.nodes(); ++node)
        for (const ElementRange& run : runs[node])
            out[node].push_back({memory + run.begin * work.partial, run.count * work.partial});
    return out;
}

uint32_t wide_children(const TwoLevelOp& op) {
    if (op.plan.algorithm != Algorithm::binomial_reduce) return 0;
    const NodeIndex root = op.layout->node_of(op.descriptor.root);
    return static_cast<uint32_t>(
        collectives::BinomialTree(op.layout->nodes(), op.self, root).children().size());
}

uint64_t wide_scratch(const Work& work) {
    const uint64_t segment = ScratchPool::rounded(work.elements * work.partial);
    const bool doubles = work.op.plan.algorithm == Algorithm::doubling_all_reduce;
    return segment * (1 + (doubles ? 1 + std::bit_width(work.at.nodes()) : 0) + wide_children(work.op));
}

// `value`: for doubling, which sends it; the others have it in `memory`.
Task<> wide_between_nodes(MeshLane& lane, const Work& work, link::Extent value, link::Extent memory) {
    const Arithmetic arithmetic{Dtype::f32, work.at.arithmetic().op};
    const NodeIndex root = work.op.layout->node_of(work.op.descriptor.root);
    const Extents all{memory};
    switch (work.op.plan.algorithm) {
        case Algorithm::doubling_all_reduce:
            return collectives::doubling_all_reduce(lane, {value}, all, arithmetic);
        case Algorithm::halving_all_reduce:
            return collectives::halving_all_reduce(lane, all, arithmetic);
        case Algorithm::ring_all_reduce:
            return collectives::ring_all_reduce(lane, wide_parts(work, memory.at), arithmetic);
        case Algorithm::binomial_reduce:
            return collectives::binomial_reduce(lane, all, root, arithmetic);
        case Algorithm::chain_reduce:
            return collectives::chain_reduce(lane, all, root, arithmetic);
        default:
            return collectives::ring_reduce_scatter(lane, wide_parts(work, memory.at), arithmetic);
    }
}

Task<> widely(MeshLane& lane, const Work& work) {
    const link::Extent memory = lane.scratch(work.elements * work.partial);
    const bool doubles = work.op.plan.algorithm == Algorithm::doubling_all_reduce;
    const link::Extent value = doubles ? lane.scratch(memory.bytes) : memory;
    Vector<Extents> partial(1, Extents{value});
    WorkerJob combine = work.combine(std::move(partial), {0, work.op.layout->size()}, {0, work.elements});
    combine.to_partial = true;
    co_await done(lane.job(std::move(combine)));
    co_await wide_between_nodes(lane, work, value, memory);
    if (work.outs.empty()) co_return ok();
    Vector<Extents> result(1, Extents{memory});
    if (scatters(work.op)) result[0] = wide_parts(work, memory.at)[work.op.self.value];
    Vector<Source> source(1, Source{{0, work.op.layout->size()}, true});
    WorkerJob finish = work.job(work.outs, std::move(result), std::move(source));
    finish.divisor = work.divisor();
    co_await done(lane.job(std::move(finish)));
    co_return ok();
}

}  // namespace

bool has_partials(const TwoLevelOp& op) {
    if (op.descriptor.partials == Partials::native || op.layout->size() == 1) return false;
    // One node's ranks are one combination: it has rounded once anyway.
    return op.descriptor.partials == Partials::tree || op.layout->nodes() > 1;
}

Task<> partials_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    const Work work(op, at);
    if (at.alone())
        co_await alone(lane, work);
    else if (work.is_tree())
        co_await along_tree(lane, work);
    else
        co_await widely(lane, work);
    co_return ok();
}

uint64_t partials_scratch(const TwoLevelOp& op, const Geometry& at) {
    if (at.alone()) return 0;
    const Work work(op, at);
    return work.is_tree() ? TreeRoom(work, cut_of(work)).bytes() : wide_scratch(work);
}

}  // namespace nexar::engine
