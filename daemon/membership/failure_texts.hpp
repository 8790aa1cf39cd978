// The errors that failures of a group's nodes, links and processes are, as functions of the group's node list
// and of what failed, never of who found it [F13].
#pragma once

#include <cstdint>
#include <string>

#include "core/ids.hpp"
#include "core/result.hpp"

namespace nexar::membership {

// One node of a group. `life`: the one that the group was made with (zero: any).
struct GroupNode {
    NodeId node;
    Incarnation life;
    uint32_t lowest_rank = 0;
    std::string hostname;  // for texts; the same on all nodes of the group, or empty
};

Error node_lost(const GroupNode& node);
Error rank_lost(const GroupNode& node, uint32_t rank, const std::string& reason);
Error link_lost(const GroupNode& a, const GroupNode& b,
                const std::string& why = "both live, but do not reach each other");

}  // namespace nexar::membership
