// Recursive doubling all-reduce (Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
// Operations in MPICH", 2005), for small data, where latency dominates. When n is no power of two, nodes are
// folded (folding.hpp).
//
// Steps: log2(p), and 2 more when folded. Bytes: the whole data per step, both ways between partners.
//
// Both partners compute the same commutative sum of two values, so all nodes end with the same bits. Each
// step's value has its own scratch, as this node's own has: nothing sent is overwritten, so no step waits for
// an acknowledgement, and only the last sum is written to the result.
#include <bit>

#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/folding.hpp"

namespace nexar::collectives {
namespace {

Extents scratch(Lane& lane, size_t bytes) {
    return {lane.scratch(bytes)};
}

}  // namespace

Task<> doubling_all_reduce(Lane& lane, Extents value, Extents result, Arithmetic arithmetic) {
    const Folding nodes(lane.nodes(), lane.self().value);
    const uint32_t steps = nodes.steps();
    const size_t bytes = link::bytes_of(value);
    const uint32_t unfold_phase = steps + 1;  // phase 0 folds, 1 .. steps double
    if (lane.nodes() == 1 || bytes == 0) co_return ok();

    if (nodes.sits_out()) {
        Op& unfolded = lane.recv_copy(nodes.twin(), unfold_phase, result);
        lane.send(nodes.twin(), 0, value);
        co_await done(unfolded);
        co_return ok();
    }

    // The whole receive schedule goes out before the first wait.
    Extents extra;
    Op* folded_in = nullptr;
    if (nodes.paired()) {
        extra = scratch(lane, bytes);
        folded_in = &lane.recv_copy(nodes.twin(), 0, extra);
    }
    Vector<Extents> theirs;
    Vector<Op*> arrivals;
    for (uint32_t step = 0; step < steps; ++step) {
        theirs.push_back(scratch(lane, bytes));
        arrivals.push_back(&lane.recv_copy(nodes.partner(step), 1 + step, theirs[step]));
    }

    if (folded_in != nullptr) {
        co_await done(*folded_in);
        co_await done(lane.reduce(value, extra, arithmetic));
    }
    for (uint32_t step = 0; step + 1 < steps; ++step) {
        lane.send(nodes.partner(step), 1 + step, value);
        co_await done(*arrivals[step]);
        co_await done(lane.reduce(theirs[step], value, arithmetic));
        value = theirs[step];
    }
    lane.send(nodes.partner(steps - 1), steps, value);
    co_await done(*arrivals[steps - 1]);
    Vector<Extents> sums;
    sums.push_back(std::move(result));
    if (nodes.paired()) sums.push_back(theirs[steps - 1]);
    Op& last = lane.combine(std::move(sums), {theirs[steps - 1], value}, arithmetic, {});
    co_await done(last);
    if (nodes.paired()) lane.send(nodes.twin(), unfold_phase, theirs[steps - 1]);
    co_return ok();
}

const Cost doubling_all_reduce_cost{
    .phases = [](const SegmentShape& s) { return static_cast<uint32_t>(std::bit_width(s.nodes())) + 1; },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            for (uint32_t node = 0; node < s.nodes(); ++node) {
                const Folding nodes(s.nodes(), node);
                if (nodes.paired()) ledger.add(node, nodes.twin().value, s.bytes());
                for (uint32_t step = 0; !nodes.sits_out() && step < nodes.steps(); ++step)
                    ledger.add(node, nodes.partner(step).value, s.bytes());
            }
        },
};

}  // namespace nexar::collectives
