// Snapshot: the engine's state for nexarctl: plain copies, made on request, in an order that is the same each
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.hpp"
#include "core/tenant.hpp"
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
    std::optional<GroupId> parent;  // of a child
    std::string parent_name;
    std::vector<RankSnapshot> ranks;  // in rank order
    uint32_t nodes = 0;
    Error failed;         // code ok: healthy
    bool frozen = false;  // something of it has failed, and its nodes agree on the cut
    Timeouts timeouts;
    size_t ops_in_flight = 0;
    size_t messages_waiting = 0;  // offers without a receive
    uint64_t opener_mark = 0;     // TenantName::mark() of its first rank here [R30]; 0: none has come
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

// A group that processes of this node wait for.
struct OpeningSnapshot {
    struct Process {
        std::optional<int64_t> rank;  // none: it takes any
        NodeId node;
        uint32_t pid = 0;
        std::optional<Duration> age;  // none: of another node
    };
    std::string name;
    std::string key;  // its first digits: equal on all nodes whose ranks have the same name and secret
    uint32_t size = 0;
    uint64_t opener_mark = 0;      // TenantName::mark() of the first process here [R30]
    bool local = false;            // without a secret: for processes of this node and user
    bool being_made = false;       // all ranks have come
    NodeId leader;                 // the node that collects the ranks
    Duration age{0};               // of the first one here
    std::optional<Duration> left;  // until the first one gives up; none: never
    std::vector<Process> here;
    bool reported = false;      // the leader has answered: what follows is known
    std::vector<Process> came;  // the first ones, in rank order
    uint32_t came_count = 0;
    std::vector<uint32_t> missing;  // the first ones; empty: any ranks
    uint32_t missing_count = 0;
    uint32_t others = 0;  // of the same opener's mark, wait for the same name with another key
    std::string trouble;  // why the last attempt to make it ended; empty: none was made
};

struct Snapshot {
    std::vector<GroupSnapshot> groups;
    std::vector<OpeningSnapshot> forming;
    std::vector<OpSnapshot> ops;
    std::vector<MessageSnapshot> messages;
    bool in_cluster = true;  // this node; otherwise no rank of another node can come
    // Beyond a SnapshotScope's `rows_max`; of an omitted group its operations and messages are not counted.
    size_t omitted_groups = 0, omitted_ops = 0, omitted_messages = 0;
};

// What one tenant may know: the groups in which its sessions of this node have a rank, or wait for one.
struct SnapshotScope {
    TenantName tenant;
    std::string group;       // name or id; empty: all
    size_t rows_max = 8192;  // of ranks, which a group and an operation list, and messages: bounds the cost
};

}  // namespace nexar::engine
