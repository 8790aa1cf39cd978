// plan(): an op's algorithm, traffic class and segments. A pure function: all daemons of a group compute the
// same plan from the same PlanTable, whose hash is in every header. predict_bytes() gives the plan's cost,
// which tests compare with the bytes sent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/layout.hpp"
#include "core/counts.hpp"
#include "core/features.hpp"
#include "core/operations.hpp"
#include "core/partials.hpp"

namespace nexar::collectives {

// Agreed when a group is made, constant for its epoch.
struct PlanTable {
    uint32_t version = plan_version_max;      // of the plan function
    uint64_t small_bytes_max = 128 * 1024;    // larger ops are bulk: they go through the shards
    uint64_t doubling_bytes_max = 16 * 1024;  // all_reduce: recursive doubling up to here, ring beyond
    uint32_t chunk_bytes = link::chunk_bytes_max;
    uint64_t segment_bytes = 4 * 1024 * 1024;  // combined, exchanged and fanned out as a unit
    uint32_t lanes = 2;                        // segments in flight at the same time

    bool operator==(const PlanTable&) const = default;
    // With the number of bulk shards that the group's lanes go over: two nodes of one hash cut and route
    // alike.
    uint64_t hash(uint32_t bulk_shards) const;
    Result<void> check() const;  // for a table that another daemon sent
};
constexpr uint32_t lanes_max = 64;
constexpr uint64_t segment_bytes_min = 4096;
constexpr uint64_t segment_bytes_max = uint64_t{1} << 30;

using Kind = OpKind;  // collectives only

enum class Algorithm : uint8_t {
    local,  // one node: no algorithm
#define NEXAR_ALGORITHM(name, text) name,
#include "operations.def"
};
std::string_view name_of(Algorithm algorithm);

struct Shape {
    Kind kind = Kind::barrier;
    uint64_t count = 0;  // elements, as in the op's descriptor
    uint32_t element_bytes = 1;
    uint32_t root = 0;                // rank
    const Counts* counts = nullptr;   // predict_bytes() needs them, plan() does not
    std::span<const Counts> sends{};  // the same where ranks have lists of their own; as in SegmentShape
    Partials partials = Partials::native;
};

constexpr uint32_t group_row_bytes = 64;  // what each rank states in a collective that makes groups

struct Plan {
    Algorithm algorithm = Algorithm::local;
    link::Class cls = link::Class::small;
    uint32_t chunk_bytes = 0;
    // Segment i has part_of(count, segments, i), of each rank's block where there are blocks.
    uint32_t segments = 1;
    uint32_t lanes = 1;
    uint32_t phases = 1;  // per segment: segment i uses phases [i * phases, (i + 1) * phases)

    bool operator==(const Plan&) const = default;
    std::string text() const;
};

Plan plan(const Shape& shape, const Layout& layout, const PlanTable& table);

// Staged operations (docs/protocol/shm.md [S12]): library and daemon cut segments by the same formula, so
// that both know the window of a segment. An op of one node has segments only when one of its ranks is
// staged.
constexpr uint64_t local_segment_bytes = 1024 * 1024;
uint64_t segment_bytes_of(const Layout& layout, const PlanTable& table);
Plan staged_plan(const Shape& shape, const Layout& layout, const PlanTable& table);

// Payload bytes from node i to node j: [i * nodes + j].
std::vector<uint64_t> predict_bytes(const Plan& plan, const Shape& shape, const Layout& layout);

}  // namespace nexar::collectives
