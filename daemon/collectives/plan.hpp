// plan(): an op's algorithm, traffic class and segments. A pure function: all daemons of a group compute the
// same plan from the same PlanTable, whose hash is in every header. predict_bytes() gives the plan's cost,
// which tests compare with the bytes sent.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/cost_model.hpp"
#include "collectives/layout.hpp"
#include "core/counts.hpp"
#include "core/features.hpp"
#include "core/operations.hpp"
#include "core/partials.hpp"

namespace nexar::collectives {

// Packets that the kernel can fill: a chunk is four records without TLS, and 15 of TLS in five sends
// (docs/protocol/tcp.md, "Records"). One of 256 KiB would be five, the last a quarter full, or six sends.
constexpr uint32_t usual_chunk_bytes = 236 * 1024;
static_assert(usual_chunk_bytes <= link::chunk_bytes_max);

// Agreed when a group is made, constant for its epoch.
struct PlanTable {
    uint32_t version = plan_version_by_size;  // of the plan function
    uint64_t small_bytes_max = 256 * 1024;    // larger ops are bulk: they go through the shards
    uint64_t doubling_bytes_max = 64 * 1024;  // plan functions 1 and 2: recursive doubling up to here
    uint32_t chunk_bytes = usual_chunk_bytes;
    uint64_t segment_bytes = 4 * 1024 * 1024;  // combined, exchanged and fanned out as a unit
    uint32_t lanes = 2;                        // segments in flight at the same time
    // From plan function 3 on (docs/protocol/planning.md).
    CostModel model;  // of the group's slowest link and host
    uint64_t large_message_bytes =
        0;                        // from here on pipelined, whatever the model says; 0: the model decides
    uint32_t ring_nodes_max = 0;  // all_reduce: a ring on up to so many nodes, and not on more; 0: the model
    Family family = Family::automatic;  // what the model chooses from

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
    Class cls = Class::small;
    uint64_t bytes = 0;  // of the whole vector, or of all blocks; UINT64_MAX: not known
    uint32_t chunk_bytes = 0;
    // Segment i has part_of(count, segments, i), of each rank's block where there are blocks.
    uint32_t segments = 1;
    uint32_t lanes = 1;
    uint32_t phases = 1;  // per segment: segment i uses phases [i * phases, (i + 1) * phases)

    bool operator==(const Plan&) const = default;
    std::string text() const;
};

Plan plan(const Shape& shape, const Layout& layout, const PlanTable& table);

// What plan() chooses from, and why it does not choose the others [O4].
struct Candidate {
    Algorithm algorithm = Algorithm::local;
    Class cls = Class::small;
    Terms terms;
    uint64_t picoseconds = 0;       // predicted; by the built-in model where functions 1 and 2 go by size
    const char* why_not = nullptr;  // a rule that excludes it; null: the model decides
    bool chosen = false;
};
std::vector<Candidate> explain(const Shape& shape, const Layout& layout, const PlanTable& table);

// Staged operations (docs/protocol/shm.md [S12]): library and daemon cut segments by the same formula, so
// that both know the window of a segment. An op of one node has segments only when one of its ranks is
// staged.
constexpr uint64_t local_segment_bytes = 1024 * 1024;
uint64_t segment_bytes_of(const Layout& layout, const PlanTable& table);
Plan staged_plan(const Shape& shape, const Layout& layout, const PlanTable& table);

// Payload bytes from node i to node j: [i * nodes + j].
std::vector<uint64_t> predict_bytes(const Plan& plan, const Shape& shape, const Layout& layout);

}  // namespace nexar::collectives
