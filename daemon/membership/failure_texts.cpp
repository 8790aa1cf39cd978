#include "membership/failure_texts.hpp"

namespace nexar::membership {

Error node_lost(const GroupNode& node) {
    return {Errc::peer_lost,
            "rank " + std::to_string(node.lowest_rank) + " is lost: its node " + node.node.short_hex() +
                " is gone",
            node.lowest_rank, -1, node.node.hex()};
}

Error rank_lost(const NodeId& node, uint32_t rank, const std::string& reason) {
    return {Errc::peer_lost,
            "rank " + std::to_string(rank) + " on node " + node.short_hex() + " is lost: " + reason, rank, -1,
            node.hex()};
}

// The smaller rank first: A about B and B about A are the same error [F9].
Error link_lost(const GroupNode& a, const GroupNode& b, const std::string& why) {
    const GroupNode& low = a.lowest_rank < b.lowest_rank ? a : b;
    const GroupNode& high = a.lowest_rank < b.lowest_rank ? b : a;
    return {Errc::link_lost,
            "the link between ranks " + std::to_string(low.lowest_rank) + " and " +
                std::to_string(high.lowest_rank) + " is lost: nodes " + low.node.short_hex() + " and " +
                high.node.short_hex() + " " + why,
            low.lowest_rank, high.lowest_rank, low.node.hex()};
}

}  // namespace nexar::membership
