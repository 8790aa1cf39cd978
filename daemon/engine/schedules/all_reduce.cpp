// all_reduce. Workers combine the local inputs in the first local output, or for doubling in scratch memory;
// the nodes combine these; workers copy the result.
#include <algorithm>
#include <bit>

#include "engine/schedules/schedule.hpp"

namespace nexar::engine {

using collectives::Algorithm;
using link::Extents;

namespace {

// Ranks may name one memory as their output: it is one result, and is divided once.
void drop_shared(Vector<Extents>& results) {
    for (auto it = results.begin(); it != results.end();) {
        const auto equal = [&](const Extents& other) { return other[0].at.same((*it)[0].at); };
        it = std::any_of(results.begin(), it, equal) ? results.erase(it) : it + 1;
    }
}

}  // namespace

// Doubling: this node's value, one of a node that is folded in, and one of each partner.
uint64_t all_reduce_scratch(const TwoLevelOp& op, const Geometry& at) {
    if (op.plan.algorithm != Algorithm::doubling_all_reduce || at.bytes() == 0) return 0;
    return (1 + std::bit_width(at.nodes())) * ScratchPool::rounded(at.bytes());
}

Task<> all_reduce_schedule(MeshLane& lane, const TwoLevelOp& op, Geometry at) {
    Vector<Extents> ins, outs;
    for (const LocalBuffers& local : op.locals) {
        ins.push_back(at.rows(local.in));
        outs.push_back(at.rows(local.out));
    }
    const Extents accumulator = outs[0];
    Vector<Extents> results = outs;
    if (!at.alone()) results.resize(1);
    if (at.divides()) drop_shared(results);

    const bool doubles = op.plan.algorithm == Algorithm::doubling_all_reduce && at.bytes() > 0;
    Extents value;
    if (doubles) value = {lane.scratch(at.bytes())};
    Vector<Extents> combined = doubles ? Vector<Extents>(1, value) : results;
    co_await done(lane.job(at.combine(std::move(combined), std::move(ins))));
    if (doubles)
        co_await collectives::doubling_all_reduce(lane, value, accumulator, at.arithmetic());
    else if (op.plan.algorithm == Algorithm::halving_all_reduce)
        co_await collectives::halving_all_reduce(lane, accumulator, at.arithmetic());
    else if (op.plan.algorithm == Algorithm::ring_all_reduce)
        co_await collectives::ring_all_reduce(lane, at.parts(accumulator[0].at), at.arithmetic());
    co_await done(lane.job(at.finish(std::move(results))));
    if (!at.alone()) co_await done(lane.job(at.copy(std::move(outs), accumulator)));
    co_return ok();
}

}  // namespace nexar::engine
