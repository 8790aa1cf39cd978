#include "rendezvous/refusals.hpp"

#include <iterator>
#include <utility>

#include "core/check.hpp"

namespace nexar::rendezvous {

Refusals::Places::iterator Refusals::erase(Places::iterator place) {
    const auto node = nodes_.find(place->first.second);
    node->second.erase(place->second);
    if (node->second.empty()) nodes_.erase(node);
    return places_.erase(place);
}

void Refusals::add(const NodeId& to, wire::GroupRefused refusal) {
    if (const auto again = places_.find({refusal.id, to}); again != places_.end()) erase(again);
    places_[{refusal.id, to}] = next_;
    auto& of_node = nodes_[to];
    of_node.emplace(next_++, std::move(refusal));
    if (of_node.size() > of_node_max_) erase(places_.find({of_node.begin()->second.id, to}));
}

void Refusals::remove(const wire::RequestId& open, const NodeId& from) {
    for (auto at = places_.lower_bound({open, {}}); at != places_.end() && at->first.first == open;)
        at = from == open.origin || from == at->first.second ? erase(at) : std::next(at);
}

std::optional<wire::GroupRefused> Refusals::take(const NodeId& to) {
    const auto node = nodes_.find(to);
    if (node == nodes_.end()) return {};
    wire::GroupRefused out = std::move(node->second.begin()->second);
    erase(places_.find({out.id, to}));
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
            const auto at = places_.find({refusal.id, node});
            NEXAR_CHECK(at != places_.end() && at->second == number);
        }
        kept += refusals.size();
    }
    NEXAR_CHECK(kept == places_.size());
}

}  // namespace nexar::rendezvous
