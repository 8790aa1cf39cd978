// GroupFacts: the part of a group that never changes and that its nodes have agreed on; and the checks of a
// call that need nothing else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
#include "engine/ports.hpp"
#include "link/mesh.hpp"
#include "rendezvous/proof.hpp"
#include "wire/messages.hpp"

namespace nexar::engine {

// The fixed facts of a group, from its GroupPrepare.
struct GroupFacts {
    GroupId id;
    GroupEpoch epoch;
    std::string name;
    SharedList<wire::GroupMemberRecord> members;  // in rank order
    collectives::Layout layout;
    collectives::NodeIndex self;
    std::vector<NodeId> nodes;           // by NodeIndex
    std::vector<link::PeerIndex> peers;  // by NodeIndex; [self] is not used
    collectives::PlanTable table;
    uint64_t table_hash = 0;
    uint32_t bulk_shards = 1;  // the fewest of any of its nodes: lanes go over so many
    Timeouts timeouts;
    std::vector<std::string> hosts;  // by NodeIndex, as known when the group was made; "": not known
    uint64_t features = 0;           // that all nodes have [V5]
    rendezvous::ProofKey secret;     // that only its nodes know: ids and secrets of children derive from it
    // Of a child (docs/protocol/children.md); the parent may have gone.
    std::optional<GroupId> parent, root;  // root: the group that was opened
    std::string parent_name;
    SharedList<uint32_t> root_ranks;  // of each rank

    uint32_t size() const { return static_cast<uint32_t>(members.size()); }
    uint64_t message_bytes_max() const { return uint64_t{link::transfer_chunks_max} * table.chunk_bytes; }
    std::string describe(uint32_t rank) const;  // "rank 3 (node 01ab…, pid 77)"
    // Adds what is known of the rank or node at fault: node, host, pid, lost ranks.
    Error explained(Error error) const;
    // [V6] Names the first of its nodes that lacks the operation.
    Result<void> check_supported(const OpDescriptor& descriptor) const;
};

// Whether a rank may call this: sizes, ranks, memory and its overlap, windows.
Result<void> check_request(const GroupFacts& facts, uint32_t rank, const OpRequest& request);

}  // namespace nexar::engine
