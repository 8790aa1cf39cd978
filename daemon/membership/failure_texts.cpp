#include "membership/failure_texts.hpp"

namespace nexar::membership {
namespace {

std::string label(const GroupNode& node) {
    if (node.hostname.empty()) return node.node.short_hex();
    return node.hostname + " (" + node.node.short_hex() + ")";
}

}  // namespace

Error node_lost(const GroupNode& node) {
    return {Errc::peer_lost,
            "rank " + std::to_string(node.lowest_rank) + " is lost: its node " + label(node) + " is gone",
            node.lowest_rank, -1, node.node.hex()};
}

Error rank_lost(const GroupNode& node, uint32_t rank, const std::string& reason) {
    return {Errc::peer_lost,
            "rank " + std::to_string(rank) + " on node " + label(node) + " is lost: " + reason, rank, -1,
            node.node.hex()};
}

// The smaller rank first: A about B and B about A are the same error [F9].
Error link_lost(const GroupNode& a, const GroupNode& b, const std::string& why) {
    const GroupNode& low = a.lowest_rank < b.lowest_rank ? a : b;
    const GroupNode& high = a.lowest_rank < b.lowest_rank ? b : a;
    return {Errc::link_lost,
            "the link between ranks " + std::to_string(low.lowest_rank) + " and " +
                std::to_string(high.lowest_rank) + " is lost: nodes " + label(low) + " and " + label(high) +
                " " + why,
            low.lowest_rank, high.lowest_rank, low.node.hex()};
}

}  // namespace nexar::membership
