// Children of a group (docs/protocol/children.md): what the ranks of a collective that makes groups state of
// themselves, and the groups that follow from it. Pure: each node computes the same from the same rows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.hpp"
#include "engine/group_facts.hpp"
#include "rendezvous/proof.hpp"

namespace nexar::engine {

// One rank's, as it travels: little-endian.
struct ChildRow {
    uint32_t colour = 0;   // no_colour: the rank gets no child
    uint32_t refusal = 0;  // ChildRefusal; then `limit` has the number that was reached
    int64_t key = 0;
    uint64_t limit = 0;
    int64_t collective_ms = -1, barrier_ms = -1, rpc_ms = -1;  // -1: not set; 0: none
    uint64_t zero[2] = {};                                     // a later version's
};
static_assert(sizeof(ChildRow) == collectives::group_row_bytes);
ChildRow child_row_of(const ChildRequest& request);

// One group that a collective makes.
struct Child {
    std::optional<uint32_t> colour;  // none: of a dup
    std::vector<uint32_t> ranks;     // of the parent, in the child's order
    Timeouts timeouts;
};
// In the order of their colours. An error: no rank gets one, for a rank of the parent that the error names.
// Requires: a row for each rank.
Result<std::vector<Child>> children_of(const GroupFacts& parent, OpKind kind, std::span<const ChildRow> rows);

// The facts of a child on this node, which has a rank in it.
GroupFacts facts_of(const GroupFacts& parent, const rendezvous::ProofPort& port, uint64_t seq,
                    const Child& child);

// The first two parts of the ids of all children that one collective makes: nobody who lacks the parent's
// secret guesses them.
struct Family {
    uint64_t creator = 0, incarnation = 0;
    auto operator<=>(const Family&) const = default;
};
Family family_of(const GroupFacts& parent, const rendezvous::ProofPort& port, uint64_t seq);

// Of a group that was opened: what its children's ids and secrets derive from [R19]. `proof`: none, if all of
// its ranks are on this node.
rendezvous::ProofKey secret_of(const GroupId& group, const std::optional<rendezvous::ProofKey>& proof,
                               const rendezvous::ProofPort& port);

}  // namespace nexar::engine
