// See cost_model.hpp. The table of docs/protocol/planning.md, line by line.
#include "collectives/cost_model.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>

#include "collectives/folding.hpp"

namespace nexar::collectives {
namespace {

using Wide = unsigned __int128;

uint64_t saturated(Wide value) {
    return value > UINT64_MAX ? UINT64_MAX : static_cast<uint64_t>(value);
}
uint64_t times(uint64_t a, uint64_t b) {
    return saturated(Wide(a) * b);
}
// bytes * part / of, rounded up.
uint64_t share(uint64_t bytes, uint64_t part, uint64_t of) {
    return saturated((Wide(bytes) * part + of - 1) / of);
}

uint64_t steps_of_tree(uint32_t nodes) {
    return std::bit_width(nodes - 1);
}

Terms doubling(const Load& l) {
    const Folding nodes(l.nodes, 0);
    const uint64_t folds = nodes.folded > 0 ? 1 : 0, steps = nodes.steps() + 2 * folds;
    return {steps, times(steps, l.bytes), times(nodes.steps() + folds, l.bytes),
            times(uint64_t{nodes.participants} * nodes.steps() + 2 * nodes.folded, l.bytes)};
}

Terms halving(const Load& l) {
    const Folding nodes(l.nodes, 0);
    const uint64_t folds = nodes.folded > 0 ? 1 : 0, p = nodes.participants;
    return {2 * nodes.steps() + 2 * folds,
            saturated(Wide(share(l.bytes, 2 * (p - 1), p)) + Wide(2 * folds) * l.bytes),
            saturated(Wide(share(l.bytes, p - 1, p)) + Wide(folds) * l.bytes),
            times(2 * (p - 1) + 2 * nodes.folded, l.bytes)};
}

// Each node passes on what is not its own, `passes` times.
Terms ring(const Load& l, uint64_t passes, bool combines) {
    const uint64_t others = l.nodes - 1, once = share(l.bytes, others, l.nodes);
    return {passes * others, times(passes, once), combines ? once : 0, times(passes * others, l.bytes)};
}

// All bytes over the last hop, behind one chunk over each of the others.
Terms chain(const Load& l, bool combines) {
    const uint64_t ahead = times(l.nodes - 2, std::min<uint64_t>(l.bytes, l.chunk_bytes));
    const uint64_t all = saturated(Wide(l.bytes) + ahead);
    return {l.nodes - 1, all, combines ? all : 0, times(l.nodes - 1, l.bytes)};
}

Terms binomial(const Load& l, bool combines) {
    const uint64_t steps = steps_of_tree(l.nodes), all = times(steps, l.bytes);
    return {steps, all, combines ? all : 0, times(l.nodes - 1, l.bytes)};
}

// What the root, or every node, has of the others' blocks. `all`: times that a block of all is sent.
Terms blocks(const Load& l, uint64_t starts, uint64_t all) {
    return {starts, share(l.bytes, l.nodes - 1, l.nodes), 0, share(l.bytes, all, l.nodes)};
}
// The hops of all nodes to the root of a binomial tree: a node's number has a one for each.
uint64_t hops_in_tree(uint32_t nodes) {
    uint64_t out = 0;
    for (uint64_t half = 1; half < nodes; half *= 2)
        out += nodes / (2 * half) * half + (nodes % (2 * half) > half ? nodes % (2 * half) - half : 0);
    return out;
}

Terms of_segment_rounds(Algorithm algorithm, const Load& l) {
    const uint64_t others = l.nodes - 1, tree = steps_of_tree(l.nodes);
    switch (algorithm) {
        case Algorithm::local:
            return {};
        case Algorithm::dissemination_barrier:
            return {tree, 0, 0, 0};
        case Algorithm::doubling_all_reduce:
            return doubling(l);
        case Algorithm::halving_all_reduce:
            return halving(l);
        case Algorithm::ring_all_reduce:
            return ring(l, 2, true);
        case Algorithm::ring_reduce_scatter:
        case Algorithm::tree_reduce_scatter:
            return ring(l, 1, true);
        case Algorithm::tree_all_reduce:
        case Algorithm::tree_reduce:
            return ring(l, 2, true);
        case Algorithm::binomial_broadcast:
            return binomial(l, false);
        case Algorithm::binomial_reduce:
            return binomial(l, true);
        case Algorithm::chain_broadcast:
            return chain(l, false);
        case Algorithm::chain_reduce:
        case Algorithm::chain_scan:
            return chain(l, true);
        case Algorithm::bruck_all_gather:
            return blocks(l, tree, others * l.nodes);
        case Algorithm::binomial_gather:
        case Algorithm::binomial_scatter:
            return blocks(l, tree, hops_in_tree(l.nodes));
        case Algorithm::ring_all_gather:
            return blocks(l, others, others * l.nodes);
        case Algorithm::direct_gather:
        case Algorithm::direct_scatter:
            return blocks(l, others, others);
        case Algorithm::confirmed_gather:
            return blocks(l, others + tree, others * l.nodes);
        case Algorithm::pairwise_all_to_all:
        case Algorithm::pairwise_all_to_allv:  // blocks are received when their counts have been
            return {algorithm == Algorithm::pairwise_all_to_all ? others : 2 * others,
                    times(l.ranks, share(l.bytes, others, l.nodes)), 0, times(others * l.ranks, l.bytes)};
        case Algorithm::direct_scan:
            return {1, times(times(others, l.ranks), l.bytes), times(times(l.nodes, l.ranks), l.bytes),
                    times(others * l.nodes / 2 * l.ranks, l.bytes)};
    }
    return {};
}

}  // namespace

std::string_view name_of(Family family) {
    static constexpr std::string_view names[families] = {"automatic", "doubling", "halving", "ring"};
    return names[static_cast<size_t>(family)];
}

Family family_named(std::string_view name) {
    for (uint8_t number = 0; number < families; ++number)
        if (name_of(static_cast<Family>(number)) == name) return static_cast<Family>(number);
    return Family::automatic;
}

Family family_of(Algorithm algorithm) {
    switch (algorithm) {
        case Algorithm::doubling_all_reduce:
        case Algorithm::binomial_broadcast:
        case Algorithm::binomial_reduce:
        case Algorithm::bruck_all_gather:
        case Algorithm::binomial_gather:
        case Algorithm::binomial_scatter:
        case Algorithm::direct_scan:
            return Family::doubling;
        case Algorithm::halving_all_reduce:
            return Family::halving;
        case Algorithm::ring_all_reduce:
        case Algorithm::chain_broadcast:
        case Algorithm::chain_reduce:
        case Algorithm::ring_all_gather:
        case Algorithm::direct_gather:
        case Algorithm::direct_scatter:
        case Algorithm::chain_scan:
            return Family::ring;
        default:
            return Family::automatic;
    }
}

Result<void> CostModel::check() const {
    for (const CostParameter& each : cost_parameters) {
        const uint32_t value = each.of(*this);
        if (value >= 1 && value <= each.most) continue;
        return fail(Errc::invalid_argument, "plan table: " + std::string(each.name) + " " +
                                                std::to_string(value) + " is not in 1.." +
                                                std::to_string(each.most));
    }
    return {};
}

std::string text_of(const CostModel& model) {
    std::string out;
    for (const CostParameter& each : cost_parameters)
        out += std::string(each.name) + " = " + std::to_string(each.of(model)) + "\n";
    return out;
}

namespace {

std::string names_of_parameters() {
    std::string out;
    for (const CostParameter& each : cost_parameters)
        out += (out.empty() ? "" : ", ") + std::string(each.name);
    return out;
}

}  // namespace

Result<CostModel> model_from(std::string_view text) {
    CostModel out{{0, 0}, {0, 0}, 0, 0};  // 0 is out of range: a parameter that is missing is refused
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        const std::string_view key = line.substr(0, line.find(" = "));
        const auto found = std::ranges::find(cost_parameters, key, &CostParameter::name);
        if (key.size() == line.size() || found == cost_parameters.end())
            return fail(Errc::invalid_argument, "'" + std::string(line.substr(0, 80)) +
                                                    "' is no line of a cost model; allowed: each parameter "
                                                    "once, as in 'small_start_ns = 25000': " +
                                                    names_of_parameters());
        if (found->of(out) != 0)
            return fail(Errc::invalid_argument, std::string(key) + " is there twice; allowed: once");
        const std::string_view digits = line.substr(key.size() + 3);
        const char* const end = digits.data() + digits.size();
        uint32_t& value = found->in(out);
        const auto read = std::from_chars(digits.data(), end, value);
        if (read.ec != std::errc{} || read.ptr != end || value == 0 || value > found->most)
            return fail(Errc::invalid_argument, std::string(key) + " is '" +
                                                    std::string(digits.substr(0, 80)) + "'; allowed: 1 to " +
                                                    std::to_string(found->most));
    }
    for (const CostParameter& each : cost_parameters)
        if (each.of(out) == 0)
            return fail(
                Errc::invalid_argument,
                std::string(each.name) + " is missing; allowed: each once of " + names_of_parameters());
    return out;
}

Terms terms_of(Algorithm algorithm, const Load& load) {
    if (load.nodes <= 1) return {};
    Terms out = of_segment_rounds(algorithm, load);
    out.starts = times(out.starts, std::max<uint32_t>(1, load.rounds));
    return out;
}

uint64_t picoseconds(const Terms& terms, const CostModel& model, Class cls) {
    const Wide starts = Wide(terms.starts) * model.of(cls).start_ns * 1000;
    const Wide wire = Wide(terms.wire_bytes) * model.of(cls).ps_per_byte;
    const Wide memory = Wide(terms.memory_bytes) * model.memory_ps_per_byte;
    return saturated(starts + wire + memory + Wide(terms.all_bytes) * model.shared_ps_per_byte);
}

}  // namespace nexar::collectives
