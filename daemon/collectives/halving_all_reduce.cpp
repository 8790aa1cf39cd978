// Halving-doubling all-reduce (Rabenseifner, "Optimization of Collective Reduction Operations", 2004): a
// reduce-scatter by recursive halving, then an all-gather by recursive doubling. When n is no power of two,
// nodes are folded (folding.hpp). For the sizes between recursive doubling, which has half of its steps and
// moves all of the data in each, and the ring, which moves as many bytes in more steps, but all of them
// between neighbours, and needs no step to wait for the one before.
//
// Steps: 2 log2(p), and 2 more when folded. Bytes: (p-1)/p of the data twice from each of p nodes; a folded
// pair the whole data both ways.
#include "collectives/algorithms.hpp"
#include "collectives/cost.hpp"
#include "collectives/extents.hpp"
#include "collectives/folding.hpp"

namespace nexar::collectives {
namespace {

// Of p parts of the data: those that a participant has the sums of when it has halved so often.
struct Parts {
    uint32_t begin, count;
};
Parts parts_after(const Folding& nodes, uint32_t index, uint32_t halvings) {
    const uint32_t count = nodes.participants >> halvings;
    return {index / count * count, count};
}

ElementRange elements_of(Parts parts, uint64_t elements, uint32_t participants) {
    const uint64_t begin = part_of(elements, participants, parts.begin).begin;
    const ElementRange last = part_of(elements, participants, parts.begin + parts.count - 1);
    return {begin, last.begin + last.count - begin};
}

}  // namespace

Task<> halving_all_reduce(Lane& lane, Extents data, Arithmetic arithmetic) {
    const Folding nodes(lane.nodes(), lane.self().value);
    const size_t element = reduce::size_of(arithmetic.dtype), bytes = link::bytes_of(data);
    const uint32_t steps = nodes.steps(), unfold_phase = 2 * steps + 1;
    if (lane.nodes() == 1 || bytes == 0) co_return ok();
    const auto part = [&](uint32_t index, uint32_t halvings) {
        const ElementRange range =
            elements_of(parts_after(nodes, index, halvings), bytes / element, nodes.participants);
        return slice(data, range.begin * element, range.count * element);
    };

    if (nodes.sits_out()) {
        Op& result = lane.recv_copy(nodes.twin(), unfold_phase, data);
        Op& given = lane.send(nodes.twin(), 0, data);  // applied before the result arrives
        co_await done(given);
        co_await done(result);
        co_return ok();
    }
    if (nodes.paired()) co_await done(lane.recv_reduce(nodes.twin(), 0, data, arithmetic));
    const uint32_t self = nodes.index();
    for (uint32_t step = 0; step < steps; ++step) {
        const uint32_t partner = self ^ (nodes.participants >> (step + 1));
        Op& kept = lane.recv_reduce(nodes.node_at(partner), 1 + step, part(self, step + 1), arithmetic);
        Op& given = lane.send(nodes.node_at(partner), 1 + step, part(partner, step + 1));
        co_await done(kept);
        co_await done(given);
    }
    for (uint32_t step = steps; step > 0; --step) {
        const uint32_t partner = self ^ (nodes.participants >> step);
        const uint32_t phase = 1 + steps + (steps - step);
        Op& taken = lane.recv_copy(nodes.node_at(partner), phase, part(partner, step));
        Op& given = lane.send(nodes.node_at(partner), phase, part(self, step));
        co_await done(taken);
        co_await done(given);
    }
    if (nodes.paired()) co_await done(lane.send(nodes.twin(), unfold_phase, data));
    co_return ok();
}

const Cost halving_all_reduce_cost{
    .phases = [](const SegmentShape& s) { return 2 * Folding(s.nodes(), 0).steps() + 2; },
    .bytes =
        [](Ledger& ledger, const SegmentShape& s) {
            for (uint32_t node = 0; node < s.nodes(); ++node) {
                const Folding nodes(s.nodes(), node);
                if (nodes.paired()) ledger.add(node, nodes.twin().value, s.bytes());
                for (uint32_t step = 0; !nodes.sits_out() && step < nodes.steps(); ++step) {
                    const uint32_t self = nodes.index(), partner = self ^ (nodes.participants >> (step + 1));
                    for (const uint32_t sent : {partner, self}) {
                        const Parts parts = parts_after(nodes, sent, step + 1);
                        ledger.add(
                            node, nodes.node_at(partner).value,
                            elements_of(parts, s.elements, nodes.participants).count * s.element_bytes);
                    }
                }
            }
        },
};

}  // namespace nexar::collectives
