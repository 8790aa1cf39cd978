// The invariants of Directory and Rendezvous, which tests check after every input.
#include <algorithm>

#include "core/check.hpp"
#include "rendezvous/rendezvous.hpp"

namespace nexar::rendezvous {

void Directory::check_invariants() const {
    size_t waiting = 0;
    for (const auto& [key, gathering] : gatherings_) {
        NEXAR_CHECK(!gathering.entries.empty());
        std::map<NodeId, size_t> nodes;
        size_t ranked = 0;
        for (const auto& [arrival, entry] : gathering.entries) {
            const auto at = where_.find(entry.open.id);
            NEXAR_CHECK(at != where_.end() && at->second == std::pair(key, arrival));
            NEXAR_CHECK(entry.arrival == arrival && arrival < next_arrival_);
            NEXAR_CHECK(entry.open.key == key && entry.open.size == gathering.size);
            ++nodes[entry.open.id.origin];
            if (entry.open.rank < 0) continue;
            const auto taken = gathering.taken.find(static_cast<uint32_t>(entry.open.rank));
            NEXAR_CHECK(taken != gathering.taken.end() && taken->second == arrival);
            ++ranked;
        }
        NEXAR_CHECK(nodes == gathering.nodes);
        NEXAR_CHECK(ranked == gathering.taken.size());
        NEXAR_CHECK(ranked == 0 || ranked == gathering.entries.size());  // [R3]
        waiting += gathering.entries.size();
    }
    NEXAR_CHECK(waiting == where_.size());
    for (const auto& [id, forming] : forming_) {
        NEXAR_CHECK(id == forming.prepare.group);
        NEXAR_CHECK(forming.entries.size() == forming.prepare.members.size());
        NEXAR_CHECK(!forming.waiting_for.empty());
        for (const NodeId& node : forming.waiting_for) NEXAR_CHECK(forming.nodes.contains(node));
        for (const NodeId& node : forming.unsent) NEXAR_CHECK(forming.nodes.contains(node));
        for (const Entry& entry : forming.entries) {
            NEXAR_CHECK(forming.nodes.contains(entry.open.id.origin));
            NEXAR_CHECK(!where_.contains(entry.open.id));
        }
    }
    NEXAR_CHECK(expired_.size() <= config_.expired_max);
}

void Rendezvous::check_invariants() const {
    directory_.check_invariants();
    local_.check_invariants();
    NEXAR_CHECK(inbox_.empty());
    NEXAR_CHECK(leader_ == (peers_.empty() ? config_.self : std::min(config_.self, peers_.begin()->first)));
    NEXAR_CHECK(leader_ != config_.self || relayed_.empty());
    for (const auto& [node, incarnation] : peers_) NEXAR_CHECK(!lost_.contains(node));
    for (const auto& [request, own] : own_) {
        NEXAR_CHECK(own.open.id == request && request.origin == config_.self);
        NEXAR_CHECK(!own.withdrawn || own.reserved);
        NEXAR_CHECK(!own.reserved || reservations_.contains(*own.reserved));
        NEXAR_CHECK(!own.local || own.listed == std::set{config_.self});
    }
    for (const auto& [group, reservation] : reservations_) {
        NEXAR_CHECK(!decisions_.contains(group));
        for (const wire::GroupMemberRecord& member : reservation.prepare.members) {
            if (member.node != config_.self) continue;
            const auto own = own_.find(member.request);
            NEXAR_CHECK(own != own_.end() && own->second.reserved == group);
        }
    }
    NEXAR_CHECK(decisions_.size() == decision_order_.size() && decisions_.size() <= config_.decisions_max);
    for (const auto& [node, groups] : promised_)
        NEXAR_CHECK(!groups.empty() && groups.size() <= config_.promises_max);
}

}  // namespace nexar::rendezvous
