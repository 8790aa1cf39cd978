#include "engine/finished_groups.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"

namespace nexar::engine {

void FinishedGroups::add(const GroupId& group, std::optional<wire::Cut> cut, std::vector<PeerIndex> members) {
    if (!cut) members.clear();  // nobody gets to know more than that this node has left
    std::ranges::sort(members);
    const size_t count = members.size();
    if (!groups_.try_emplace(group, Finished{std::move(cut), std::move(members)}).second) return;
    order_.push_back(group);
    members_ += count;
    while (order_.size() > 1 && (order_.size() > groups_max_ || members_ > members_max_)) forget_oldest();
}

void FinishedGroups::forget_oldest() {
    const auto at = groups_.find(order_.front());
    members_ -= at->second.members.size();
    groups_.erase(at);
    order_.pop_front();
}

std::optional<wire::Cut> FinishedGroups::cut_for(PeerIndex node, const GroupId& group) const {
    const auto at = groups_.find(group);
    if (at == groups_.end() || !std::ranges::binary_search(at->second.members, node)) return {};
    return at->second.cut;
}

void FinishedGroups::check_invariants() const {
    size_t members = 0;
    for (const auto& [id, group] : groups_) members += group.members.size();
    NEXAR_CHECK(members == members_ && groups_.size() == order_.size());
    NEXAR_CHECK(order_.size() <= 1 || (order_.size() <= groups_max_ && members_ <= members_max_));
}

}  // namespace nexar::engine
