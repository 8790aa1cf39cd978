// The time that an algorithm between nodes takes, predicted (docs/protocol/planning.md). Pure, and integers
// only: all hosts of a group compute the same number from the same parameters [O1].
//
// Source: Hockney, "The communication challenge for MPP", 1994 (start and time per byte); Thakur,
// Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH", 2005 (the sums for
// each algorithm).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.hpp"
#include "link/transfer.hpp"

namespace nexar::collectives {

enum class Algorithm : uint8_t {
    local,  // one node: no algorithm
#define NEXAR_ALGORITHM(name, text) name,
#include "operations.def"
};
std::string_view name_of(Algorithm algorithm);
// What it sends lies in scratch memory that is not written again: neither a step nor its end awaits an ack.
constexpr bool awaits_no_ack(Algorithm algorithm) {
    return algorithm == Algorithm::dissemination_barrier || algorithm == Algorithm::doubling_all_reduce;
}

// Fewest steps; few steps and few bytes; fewest bytes, each step's chunks forwarded as they arrive.
enum class Family : uint8_t { automatic, doubling, halving, ring };
constexpr uint8_t families = 4;
std::string_view name_of(Family family);
Family family_named(std::string_view name);  // automatic: there is none of that name
Family family_of(Algorithm algorithm);       // automatic: of none; its operation has no other algorithm

// A class of transfers between two nodes.
struct LinkCost {
    uint32_t start_ns = 0;  // what one more transfer takes, one after the other, without its bytes; with what
                            // its daemons hand over between their threads
    uint32_t ps_per_byte = 0;  // further time for each byte
    bool operator==(const LinkCost&) const = default;
};

// Of the slowest link and host of a group.
struct CostModel {
    LinkCost small{8000, 950};          // by the control loops
    LinkCost bulk{24'000, 700};         // by the shards
    uint32_t memory_ps_per_byte = 150;  // combining or copying within a node
    uint32_t shared_ps_per_byte = 1;    // for each byte that any node sends: in what all of them share

    const LinkCost& of(Class cls) const { return cls == Class::bulk ? bulk : small; }
    bool operator==(const CostModel&) const = default;
    Result<void> check() const;  // for parameters from outside
};
constexpr uint32_t start_ns_max = 1'000'000'000;
constexpr uint32_t ps_per_byte_max = 100'000'000;  // 10 kB/s

struct CostParameter {
    const char* name;
    const char* meaning;  // for people
    uint32_t most;
    uint32_t& (*in)(CostModel& model);
    uint32_t of(CostModel model) const { return in(model); }
};
// In the order of the file, of answers to nexarctl, and of lists of six numbers.
constexpr std::array<CostParameter, 6> cost_parameters{{
    {"small_start_ns", "one more transfer by the control loops, without its bytes", start_ns_max,
     [](CostModel& m) -> uint32_t& { return m.small.start_ns; }},
    {"small_ps_per_byte", "each byte of it", ps_per_byte_max,
     [](CostModel& m) -> uint32_t& { return m.small.ps_per_byte; }},
    {"bulk_start_ns", "one more transfer by the shards, without its bytes", start_ns_max,
     [](CostModel& m) -> uint32_t& { return m.bulk.start_ns; }},
    {"bulk_ps_per_byte", "each byte of it", ps_per_byte_max,
     [](CostModel& m) -> uint32_t& { return m.bulk.ps_per_byte; }},
    {"memory_ps_per_byte", "combining or copying a byte on a host", ps_per_byte_max,
     [](CostModel& m) -> uint32_t& { return m.memory_ps_per_byte; }},
    {"shared_ps_per_byte", "each byte of all hosts together, where they share what carries it",
     ps_per_byte_max, [](CostModel& m) -> uint32_t& { return m.shared_ps_per_byte; }},
}};
static_assert(sizeof(CostModel) == cost_parameters.size() * sizeof(uint32_t), "one has no row here");

// As an object of a JSON library: a member for each parameter.
template <class Json>
Json object_of(const CostModel& model) {
    Json out = Json::object();
    for (const CostParameter& each : cost_parameters) out[each.name] = each.of(model);
    return out;
}

// As nexard keeps it: a line "name = number" for each parameter. An error names the line.
std::string text_of(const CostModel& model);
Result<CostModel> model_from(std::string_view text);

// What of an operation goes between nodes.
struct Load {
    uint32_t nodes = 1;
    uint32_t ranks = 1;        // on the node with the most
    uint64_t bytes = 0;        // of a rank's larger side
    uint32_t chunk_bytes = 1;  // what a chain's node has before it forwards
    uint32_t rounds = 1;       // of segments, one after the other
};

// Time = starts x start + wire_bytes x ps_per_byte + memory_bytes x memory_ps_per_byte
//        + all_bytes x shared_ps_per_byte
struct Terms {
    uint64_t starts = 0, wire_bytes = 0, memory_bytes = 0;  // on the critical path
    uint64_t all_bytes = 0;                                 // that all nodes send
    bool operator==(const Terms&) const = default;
};
Terms terms_of(Algorithm algorithm, const Load& load);
uint64_t picoseconds(const Terms& terms, const CostModel& model, Class cls);  // saturates

}  // namespace nexar::collectives
