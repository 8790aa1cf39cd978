// The errors of failed nodes, links and processes of a group: functions of the group's node list and of what
// failed, never of the node that found the failure [F13].
#pragma once

#include <cstdint>
#include <string>

#include "core/ids.hpp"
#include "core/result.hpp"

namespace nexar::membership {

// One node of a group. `incarnation`: the one that the group was made with (zero: any).
struct GroupNode {
    NodeId node;
    Incarnation incarnation;
    uint32_t lowest_rank = 0;
};

constexpr const char* no_way_between =
    "both live, but do not reach each other: run nexarctl doctor on both hosts; their firewalls and what is "
    "between them must pass nexard's UDP ports (listen, and the bulk ports) both ways";

Error node_lost(const GroupNode& node);
Error rank_lost(const NodeId& node, uint32_t rank, const std::string& reason);
Error link_lost(const GroupNode& a, const GroupNode& b, const std::string& why = no_way_between);

}  // namespace nexar::membership
