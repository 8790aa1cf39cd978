#include "collectives/plan.hpp"

#include <algorithm>
#include <initializer_list>

#include "collectives/choice.hpp"
#include "collectives/cost.hpp"

namespace nexar::collectives {
namespace {

constexpr uint64_t divide_up(uint64_t a, uint64_t b) {
    return a / b + (a % b != 0 ? 1 : 0);
}

uint32_t width_of(const Shape& shape) {
    return static_cast<uint32_t>(partial_bytes(shape.element_bytes, shape.partials));
}

// What a node sends of each element, at most.
uint64_t partials_of_node(const Shape& shape, const Layout& layout) {
    return shape.partials == Partials::tree ? std::max<uint64_t>(1, layout.subtrees_max()) : 1;
}

// Plan functions 1 and 2: by size.
Algorithm choose(const Shape& shape, uint64_t bytes, const Layout& layout, const PlanTable& table) {
    if (layout.nodes() <= 1) return Algorithm::local;
    // An op without data still synchronises: its barrier carries the descriptors that are compared.
    if (bytes == 0) return Algorithm::dissemination_barrier;
    if (shape.partials == Partials::tree) return deterministic(shape.kind);
    const uint64_t of_rank = bytes;
    const uint64_t of_group = shape.count * width_of(shape) * layout.size();
    switch (shape.kind) {
#define NEXAR_COLLECTIVE(number, name, NAME, summary, memory, in, out, in_place, reduction, root, agreed, \
                         limit, of, up_to, beyond)                                                        \
    case OpKind::name:                                                                                    \
        return of <= table.limit ? Algorithm::up_to : Algorithm::beyond;
#define NEXAR_GROUPING(number, name, ...) \
    case OpKind::name:                    \
        return Algorithm::confirmed_gather;
#include "operations.def"
        default:
            return Algorithm::local;  // messages have no plan
    }
}

// Version 1 had no logarithmic all-gather.
Algorithm as_of(uint32_t version, Algorithm chosen) {
    return version == 1 && chosen == Algorithm::bruck_all_gather ? Algorithm::ring_all_gather : chosen;
}

// Requires: not `local`.
const Cost& cost_of(Algorithm algorithm) {
    static constexpr const Cost* costs[] = {
#define NEXAR_ALGORITHM(name, text) &name##_cost,
#include "operations.def"
    };
    return *costs[static_cast<size_t>(algorithm) - 1];
}

// What makes groups gathers one row of each rank, whatever its descriptor's type is.
Shape gathered_shape(Shape shape) {
    if (row_of(shape.kind).makes_groups) shape.count = 1, shape.element_bytes = group_row_bytes;
    return shape;
}

SegmentShape segment_of(const Plan& plan, const Shape& shape, const Layout& layout, uint32_t index) {
    const ElementRange range = part_of(shape.count, plan.segments, index);
    SegmentShape out{layout,           range.count, shape.element_bytes, layout.node_of(shape.root),
                     plan.chunk_bytes, range.begin, shape.counts,        shape.sends};
    out.partial_bytes = width_of(shape);
    out.has_counts = has_counts(row_of(shape.kind));
    // Wide partials travel as any f32 does.
    if (shape.partials == Partials::wide) out.element_bytes = out.partial_bytes;
    return out;
}

// What the model would say of a plan that size chose; it may have an algorithm that older functions had not.
std::vector<Candidate> beside(const Plan& plan, const Candidates& candidates) {
    std::vector<Candidate> out;
    for (Candidate one : candidates.all()) {
        one.chosen = one.algorithm == plan.algorithm && one.cls == plan.cls;
        one.why_not = one.chosen ? nullptr : "by size: the plan function has no model";
        out.push_back(one);
    }
    return out;
}

// `considered`: null, or what the plan was chosen from.
Plan planned(const Shape& given, const Layout& layout, const PlanTable& table,
             std::vector<Candidate>* considered) {
    const OpRow& row = row_of(given.kind);
    const Shape shape = gathered_shape(given);
    const uint64_t count = row.has_elements && !has_own_counts(row) ? shape.count : 0;
    const uint64_t blocks = row.makes_groups ? layout.size() : row_blocks(row, layout.size());
    // Not known where each rank has its own lists of counts: any length, so the bulk class.
    const uint64_t bytes =
        has_own_counts(row) ? UINT64_MAX : (row.makes_groups ? 1 : count) * width_of(shape) * blocks;

    Plan out;
    const uint64_t most = table.small_bytes_max / partials_of_node(shape, layout);
    out.cls = bytes <= most ? Class::small : Class::bulk;
    out.bytes = bytes;
    out.chunk_bytes = table.chunk_bytes;
    if (layout.nodes() <= 1) return out;
    out.segments = segments_of(row, count, width_of(shape), layout.size(), table.segment_bytes);
    if (table.version < 3 || bytes == 0) {
        out.algorithm = as_of(table.version, choose(shape, bytes, layout, table));
        if (considered != nullptr && bytes == 0)
            considered->push_back({out.algorithm, out.cls, {}, 0, nullptr, true});
        if (considered != nullptr && bytes > 0) {
            PlanTable shown = table;
            shown.model = CostModel{};
            *considered = beside(out, candidates_of(shape, layout, shown,
                                                    {bytes, most, out.segments, out.algorithm, out.cls}));
        }
    } else {
        const Algorithm usual = choose(shape, bytes, layout, table);
        const Candidates candidates =
            candidates_of(shape, layout, table, {bytes, most, out.segments, usual, out.cls});
        for (const Candidate& one : candidates.all()) {
            if (one.chosen) out.algorithm = one.algorithm, out.cls = one.cls;
            if (considered != nullptr) considered->push_back(one);
        }
    }
    out.lanes = std::min(table.lanes, out.segments);
    out.phases = cost_of(out.algorithm).phases(segment_of(out, shape, layout, 0));
    return out;
}

}  // namespace

uint64_t PlanTable::hash(uint32_t bulk_shards) const {
    uint64_t h = 0xcbf29ce484222325u;  // FNV-1a over 64-bit words
    const auto add = [&](std::initializer_list<uint64_t> words) {
        for (const uint64_t word : words)
            for (int shift = 0; shift < 64; shift += 8) h = (h ^ ((word >> shift) & 0xff)) * 0x100000001b3u;
    };
    add({version, small_bytes_max, doubling_bytes_max, chunk_bytes, segment_bytes, lanes, bulk_shards});
    // What older functions do not use is not a difference between their groups [O3].
    if (version >= 3)
        add({model.small.start_ns, model.small.ps_per_byte, model.bulk.start_ns, model.bulk.ps_per_byte,
             model.memory_ps_per_byte, model.shared_ps_per_byte, large_message_bytes, ring_nodes_max,
             static_cast<uint64_t>(family)});
    return h;
}

Result<void> PlanTable::check() const {
    if (version == 0 || version > plan_version_max)
        return fail(Errc::unsupported, "plan function version " + std::to_string(version) +
                                           "; the latest that this daemon knows is " +
                                           std::to_string(plan_version_max));
    if (chunk_bytes == 0 || chunk_bytes % 64 != 0 || chunk_bytes > link::chunk_bytes_max)
        return fail(Errc::invalid_argument, "plan table: chunk_bytes " + std::to_string(chunk_bytes) +
                                                " is not a multiple of 64 from 64 to " +
                                                std::to_string(link::chunk_bytes_max));
    if (lanes == 0 || lanes > lanes_max)
        return fail(Errc::invalid_argument, "plan table: lanes " + std::to_string(lanes) + " is not in 1.." +
                                                std::to_string(lanes_max));
    if (segment_bytes < segment_bytes_min || segment_bytes > segment_bytes_max)
        return fail(Errc::invalid_argument, "plan table: segment_bytes " + std::to_string(segment_bytes) +
                                                " is not in " + std::to_string(segment_bytes_min) + ".." +
                                                std::to_string(segment_bytes_max));
    // A segment is at most a few rows above one transfer: it has whole rows of all ranks.
    if (divide_up(segment_bytes, chunk_bytes) > link::transfer_chunks_max / 2)
        return fail(Errc::invalid_argument, "plan table: segment_bytes " + std::to_string(segment_bytes) +
                                                " is more than " +
                                                std::to_string(link::transfer_chunks_max / 2) +
                                                " chunks of chunk_bytes " + std::to_string(chunk_bytes));
    // One segment of a doubling op has scratch for every step.
    if (doubling_bytes_max > segment_bytes || small_bytes_max > segment_bytes)
        return fail(Errc::invalid_argument,
                    "plan table: small_bytes_max and doubling_bytes_max may not exceed "
                    "segment_bytes " +
                        std::to_string(segment_bytes));
    if (version < 3) return {};
    if (static_cast<uint8_t>(family) >= families)
        return fail(Errc::invalid_argument, "plan table: there is no family of algorithms with number " +
                                                std::to_string(static_cast<unsigned>(family)));
    return model.check();
}

std::string_view name_of(Algorithm algorithm) {
    static constexpr std::string_view names[] = {
        "local",
#define NEXAR_ALGORITHM(name, text) text,
#include "operations.def"
    };
    return names[static_cast<size_t>(algorithm)];
}

std::string Plan::text() const {
    if (algorithm == Algorithm::local)
        return segments == 1 ? "local"
                             : "local, " + std::to_string(segments) + " segments, " + std::to_string(lanes) +
                                   (lanes == 1 ? " lane" : " lanes");
    return std::string(name_of(algorithm)) + (cls == Class::bulk ? ", bulk, " : ", small, ") +
           std::to_string(segments) + (segments == 1 ? " segment, " : " segments, ") + std::to_string(lanes) +
           (lanes == 1 ? " lane, chunks of " : " lanes, chunks of ") + std::to_string(chunk_bytes) + " bytes";
}

uint64_t segment_bytes_of(const Layout& layout, const PlanTable& table) {
    return layout.nodes() <= 1 ? local_segment_bytes : table.segment_bytes;
}

Plan plan(const Shape& shape, const Layout& layout, const PlanTable& table) {
    return planned(shape, layout, table, nullptr);
}

std::vector<Candidate> explain(const Shape& shape, const Layout& layout, const PlanTable& table) {
    std::vector<Candidate> out;
    planned(shape, layout, table, &out);
    return out;
}

Plan staged_plan(const Shape& shape, const Layout& layout, const PlanTable& table) {
    Plan out = plan(shape, layout, table);
    if (out.algorithm != Algorithm::local) return out;
    out.segments =
        segments_of(row_of(shape.kind), shape.count, width_of(shape), layout.size(), local_segment_bytes);
    out.lanes = std::min(table.lanes, out.segments);
    return out;
}

std::vector<uint64_t> predict_bytes(const Plan& plan, const Shape& given, const Layout& layout) {
    const Shape shape = gathered_shape(given);
    std::vector<uint64_t> bytes(size_t{layout.nodes()} * layout.nodes());
    if (plan.algorithm == Algorithm::local) return bytes;
    Ledger ledger(bytes, layout.nodes());
    for (uint32_t i = 0; i < plan.segments; ++i)
        cost_of(plan.algorithm).bytes(ledger, segment_of(plan, shape, layout, i));
    return bytes;
}

}  // namespace nexar::collectives
