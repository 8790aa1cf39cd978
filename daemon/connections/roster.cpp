#include "connections/roster.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::connections {

bool is_relayed(const std::string& address) {
    return address.starts_with("via:");
}

void Roster::set_expiry(const NodeId& node, Entry& entry, Time expires) {
    if (entry.expires != never) expiries_.erase({entry.expires, node});
    entry.expires = expires;
    if (expires != never) expiries_.insert({expires, node});
}

void Roster::leave_unmet(Entry& entry) {
    if (entry.standing != Standing::unmet) return;
    const auto count = unmet_.find(entry.sender);
    if (--count->second == 0) unmet_.erase(count);
}

// The first gossip about a node counts, until the node itself sends its record.
Roster::Learnt Roster::learn(const wire::NodeRecord& record, const NodeId& from, Time now) {
    const NodeId& node = record.node;
    const bool own_words = node == from;
    if (const auto known = entries_.find(node); known != entries_.end()) {
        Entry& entry = known->second;
        const bool changes = own_words && entry.record != record;
        if (changes) entry.record = record;
        return changes ? Learnt::changed : Learnt::nothing;
    }
    const auto remembered = forgotten_.find(node);
    if (!own_words) {
        if (remembered != forgotten_.end() && now < remembered->second.until) return Learnt::nothing;
        const auto count = unmet_.find(from);
        if (count != unmet_.end() && count->second >= unmet_max()) return Learnt::nothing;
        if (entries_.size() >= config_.nodes_max) return Learnt::nothing;
    } else if (entries_.size() >= config_.nodes_max && !make_room(now)) {
        return Learnt::nothing;
    }
    Entry& entry = entries_[node];
    entry.record = record;
    entry.sender = from;
    ++unmet_[from];
    set_expiry(node, entry, now + config_.forget_unmet);
    if (remembered != forgotten_.end()) {
        entry.highest_counter = remembered->second.highest_counter;
        forgotten_.erase(remembered);
    }
    return Learnt::added;
}

void Roster::set_standing(const NodeId& node, Standing standing, Time now) {
    NEXAR_CHECK(standing != Standing::unmet);
    Entry& entry = entries_.at(node);
    leave_unmet(entry);
    entry.standing = standing;
    if (standing == Standing::met) return set_expiry(node, entry, never);
    set_expiry(node, entry,
               now + (standing == Standing::lost ? config_.forget_lost : config_.forget_departed));
}

void Roster::set_highest_counter(const NodeId& node, uint64_t counter) {
    entries_.at(node).highest_counter = counter;
}

uint64_t Roster::highest_counter_of(const NodeId& node) const {
    if (const auto at = entries_.find(node); at != entries_.end()) return at->second.highest_counter;
    const auto at = forgotten_.find(node);
    return at == forgotten_.end() ? 0 : at->second.highest_counter;
}

void Roster::erase(const NodeId& node, Time now) {
    Entry& entry = entries_.at(node);
    leave_unmet(entry);
    set_expiry(node, entry, never);
    forgotten_[node] = {now + config_.forgotten_for, entry.highest_counter};
    forgotten_order_.emplace_back(now + config_.forgotten_for, node);
    entries_.erase(node);
    taken_out_.push_back(node);
    while (forgotten_order_.size() > config_.nodes_max) {
        const auto [until, oldest] = forgotten_order_.front();
        forgotten_order_.pop_front();
        const auto at = forgotten_.find(oldest);
        if (at != forgotten_.end() && at->second.until == until) forgotten_.erase(at);
    }
}

// The unmet and the departed expire long before those that were lost, so the first one is near.
const std::pair<Time, NodeId>* Roster::replaceable() const {
    const auto at = std::ranges::find_if(
        expiries_, [&](const auto& expiry) { return entries_.at(expiry.second).standing != Standing::lost; });
    return at == expiries_.end() ? nullptr : &*at;
}

bool Roster::make_room(Time now) {
    const auto* expiry = replaceable();
    if (!expiry) return false;
    erase(NodeId(expiry->second), now);
    return true;
}

bool Roster::has_room_for(const NodeId& node) const {
    return entries_.contains(node) || entries_.size() < config_.nodes_max || replaceable() != nullptr;
}

std::optional<NodeId> Roster::poll_forgotten(Time now) {
    if (taken_out_.empty() && !expiries_.empty() && expiries_.begin()->first <= now)
        erase(NodeId(expiries_.begin()->second), now);
    if (taken_out_.empty()) return std::nullopt;
    const NodeId out = taken_out_.front();
    taken_out_.pop_front();
    return out;
}

Time Roster::wake_at() const {
    if (!taken_out_.empty()) return Time{};
    return expiries_.empty() ? never : expiries_.begin()->first;
}

const wire::NodeRecord* Roster::find(const NodeId& node) const {
    const auto at = entries_.find(node);
    return at == entries_.end() ? nullptr : &at->second.record;
}

std::optional<Roster::Place> Roster::place_of(const NodeId& node) const {
    const auto at = entries_.find(node);
    if (at == entries_.end()) return std::nullopt;
    return Place{at->second.standing, at->second.expires};
}

std::vector<wire::NodeRecord> Roster::records() const {
    std::vector<wire::NodeRecord> out;
    out.reserve(entries_.size());
    for (const auto& [node, entry] : entries_) out.push_back(entry.record);
    return out;
}

std::vector<wire::NodeRecord> Roster::present() const {
    std::vector<wire::NodeRecord> out;
    for (const auto& [node, entry] : entries_)
        if (entry.standing != Standing::departed) out.push_back(entry.record);
    return out;
}

bool Roster::knows_below(const NodeId& node) const {
    for (auto at = entries_.begin(); at != entries_.end() && at->first < node; ++at)
        if (at->second.standing != Standing::departed) return true;
    return false;
}

void Roster::check_invariants() const {
    NEXAR_CHECK(entries_.size() <= config_.nodes_max);
    NEXAR_CHECK(forgotten_.size() <= forgotten_order_.size());
    NEXAR_CHECK(forgotten_order_.size() <= config_.nodes_max);
    std::map<NodeId, size_t> unmet;
    size_t expire = 0;
    for (const auto& [node, entry] : entries_) {
        NEXAR_CHECK(node == entry.record.node);
        NEXAR_CHECK(!forgotten_.contains(node));
        NEXAR_CHECK((entry.standing == Standing::met) == (entry.expires == never));
        if (entry.standing == Standing::unmet) ++unmet[entry.sender];
        if (entry.expires == never) continue;
        NEXAR_CHECK(expiries_.contains({entry.expires, node}));
        ++expire;
    }
    NEXAR_CHECK(expire == expiries_.size());
    NEXAR_CHECK(unmet == unmet_);
}

}  // namespace nexar::connections
