// Snapshot: the engine's state for nexarctl: plain copies, made on request, in an order that is the same each
// time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
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

constexpr size_t ranks_listed_max = 4096;  // of one list

struct GroupSnapshot {
    GroupId id;
    GroupEpoch epoch;
    std::string name;
    std::optional<GroupId> parent;  // of a child
    std::string parent_name;
    size_t size = 0;
    std::vector<RankSnapshot> ranks;  // the first SnapshotScope::ranks_max, in rank order
    uint64_t next_op = 0;             // the most collectives that one of them all has posted
    uint32_t nodes = 0;
    Error failed;         // code ok: healthy
    bool frozen = false;  // something of it has failed, and its nodes agree on the cut
    Timeouts timeouts;
    collectives::PlanTable table;
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
    std::string phase;     // "waiting for ranks", "running 2 of 8 segments", "ending"
    std::string plan;      // "ring, bulk, 4 lanes, 8 segments of 4194304 bytes, chunks of 262144"
    std::string priority;  // on this node; empty: it has not begun here
    // The first ranks_listed_max of each, and how many there are.
    std::vector<RankSnapshot> arrived;
    std::vector<RankSnapshot> missing;  // certainly: other nodes' ranks once their node has answered
    std::vector<NodeId> unanswered;     // nodes of other ranks: asked after a second, no answer yet
    size_t arrived_count = 0, missing_count = 0, unanswered_count = 0;
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
    std::vector<Process> here;     // the first ones
    size_t here_count = 0;
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
    // Beyond a SnapshotScope's bounds; of an omitted group its operations and messages are not counted.
    size_t omitted_groups = 0, omitted_ops = 0, omitted_messages = 0, omitted_forming = 0;
};

// What is asked for, and bounds of the cost of an answer [N17].
struct SnapshotScope {
    // What one tenant may know: the groups in which its sessions of this node have a rank, or wait for one.
    // None: all that there is.
    std::optional<TenantName> tenant{};
    std::string group{};  // name or id; empty: all
    // Of ranks, which a group and an operation list, and messages; and once more of the opens of forming
    // groups. The last one shown may go beyond it.
    size_t rows_max = 8192;
    size_t ranks_max = ranks_listed_max;  // of a group
    size_t groups_max = 1024;
    size_t ops_max = 1024;
    size_t messages_max = 1024;
    size_t forming_max = 512;
};

}  // namespace nexar::engine
