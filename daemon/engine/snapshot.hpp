// Snapshot: the engine's state for nexarctl: plain copies, made on request, in an order that is the same each
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/time.hpp"
#include "engine/ports.hpp"

namespace nexar::engine {

struct RankSnapshot {
    Rank rank;
    NodeId node;
    uint32_t pid = 0;
    bool local = false;
    bool gone = false;    // its process has ended, or freed the group
    uint64_t posted = 0;  // collectives: exact for local ranks, as far as known for others
};

struct GroupSnapshot {
    GroupId id;
    GroupEpoch epoch;
    std::string name;
    std::vector<RankSnapshot> ranks;  // in rank order
    uint32_t nodes = 0;
    Error failed;         // code ok: healthy
    bool frozen = false;  // something of it has failed, and its nodes agree on the cut
    Timeouts timeouts;
    size_t ops_in_flight = 0;
    size_t messages_waiting = 0;  // offers without a receive
};

struct OpSnapshot {
    GroupId group;
    std::string group_name;
    uint64_t seq = 0;
    OpDescriptor descriptor;
    Duration age{0};
    std::string phase;  // "waiting for ranks", "running 2 of 8 segments", "ending"
    std::string plan;   // "ring, bulk, 4 lanes, 8 segments of 4194304 bytes, chunks of 262144"
    std::vector<RankSnapshot> arrived;
    std::vector<RankSnapshot> missing;  // certainly: other nodes' ranks once their node has answered
    std::vector<NodeId> unanswered;     // nodes of other ranks: asked after a second, no answer yet
};

struct MessageSnapshot {
    GroupId group;
    std::string what;  // "recv by rank 3 from any rank, tag 7"
    Duration age{0};
};

// A process of this node that waits for its group to be complete.
struct OpeningSnapshot {
    std::string name;
    uint32_t size = 0;
    std::optional<int64_t> rank;  // none: it takes any
    uint32_t pid = 0;
};

struct Snapshot {
    std::vector<GroupSnapshot> groups;
    std::vector<OpeningSnapshot> forming;
    std::vector<OpSnapshot> ops;
    std::vector<MessageSnapshot> messages;
};

}  // namespace nexar::engine
