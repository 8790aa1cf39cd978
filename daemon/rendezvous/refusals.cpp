#include "rendezvous/refusals.hpp"

#include <utility>

#include "core/check.hpp"

namespace nexar::rendezvous {

void Refusals::erase(std::map<wire::RequestId, Place>::iterator open) {
    const auto node = nodes_.find(open->second.to);
    node->second.erase(open->second.number);
    if (node->second.empty()) nodes_.erase(node);
    places_.erase(open);
}

void Refusals::add(const NodeId& to, wire::GroupRefused refusal) {
    if (const auto again = places_.find(refusal.id); again != places_.end()) erase(again);
    places_[refusal.id] = {to, next_};
    auto& of_node = nodes_[to];
    of_node.emplace(next_++, std::move(refusal));
    if (of_node.size() > of_node_max_) erase(places_.find(of_node.begin()->second.id));
}

void Refusals::remove(const wire::RequestId& open, const NodeId& from) {
    const auto at = places_.find(open);
    if (at != places_.end() && (from == open.origin || from == at->second.to)) erase(at);
}

std::optional<wire::GroupRefused> Refusals::take(const NodeId& to) {
    const auto node = nodes_.find(to);
    if (node == nodes_.end()) return {};
    wire::GroupRefused out = std::move(node->second.begin()->second);
    erase(places_.find(out.id));
    return out;
}

std::vector<NodeId> Refusals::nodes() const {
    std::vector<NodeId> out;
    for (const auto& [node, refusals] : nodes_) out.push_back(node);
    return out;
}

void Refusals::check_invariants() const {
    size_t kept = 0;
    for (const auto& [node, refusals] : nodes_) {
        NEXAR_CHECK(!refusals.empty() && refusals.size() <= of_node_max_);
        for (const auto& [number, refusal] : refusals) {
            const auto at = places_.find(refusal.id);
            NEXAR_CHECK(at != places_.end() && at->second.to == node && at->second.number == number);
        }
        kept += refusals.size();
    }
    NEXAR_CHECK(kept == places_.size());
}

}  // namespace nexar::rendezvous
