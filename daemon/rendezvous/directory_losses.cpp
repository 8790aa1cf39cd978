// See directory.hpp. A node is disconnected: what it listed or passed on is removed, some opens in each turn
// [R26]. And opens of a node that the leader does not reach [R27].
#include <algorithm>
#include <iterator>

#include "rendezvous/directory.hpp"

namespace nexar::rendezvous {

void Directory::lose(const NodeId& via, Incarnation incarnation) {
    LostListings lost{incarnation, next_arrival_, ways_.of(via), 0};
    // Its own opens that came through others as well: the attempts with them end.
    if (const auto known = origins_.find(via); known != origins_.end()) {
        size_t all = 0;
        for (const auto& [of, opens] : known->second) all += opens.size();
        for (const auto& [of, opens] : known->second)
            if (all != ways_.count(via, via) && of.counter <= incarnation.counter)
                std::ranges::copy(opens, std::back_inserter(lost.opens));
    }
    if (lost.opens.empty())
        lost_listings_.erase(via);
    else
        lost_listings_[via] = std::move(lost);
}

// One node's at a time: the rest of its opens waits, and is removed before another leader gets it.
void Directory::forget_lost_listings(size_t most, Time now) {
    for (size_t n = 0; n < most && !lost_listings_.empty(); ++n) {
        const auto first = lost_listings_.begin();
        const NodeId via = first->first;
        forget_next(via, first->second, now);
        if (first->second.next == first->second.opens.size()) lost_listings_.erase(first);
    }
}

void Directory::forget_next(const NodeId& via, LostListings& lost, Time now) {
    const wire::RequestId request = lost.opens[lost.next++];
    Entry* entry = find(request);
    if (entry == nullptr || entry->arrival >= lost.before) return;
    const bool in_it = request.origin == via && entry->open.incarnation.counter <= lost.incarnation.counter;
    const bool came = entry->came_through(via), gone = came && drop_via(*entry, via);
    if (came) sends_.push_back({via, wire::GroupUnlisted{request}});
    if (const auto attempt = attempt_of_.find(request); attempt == attempt_of_.end()) {
        if (gone) erase_waiting(request);
    } else if (gone || in_it) {
        const Error error{Errc::pending,
                          "node " + config_.name_of(via) + " was lost while the group was formed",
                          -1,
                          -1,
                          {}};
        std::set<wire::RequestId> out;
        if (gone) out.insert(request);
        abort_attempt(GroupId(attempt->second.first), error, out, now);
    }
}

// Also for an open whose node has got the attempt's end: its reservation may have ended before [R8]. The
// refusal goes the open's way, where it may get lost: its node gets it again if it lists the open again.
void Directory::end_unlinked(const Entry& entry, const Error& error) {
    refuse(entry, error);
    const wire::GroupOpen& open = entry.open;
    if (!ended_.try_emplace(open.id, open, error).second) return;
    ended_order_.push_back(open.id);
    if (ended_order_.size() <= config_.ended_max) return;
    ended_.erase(ended_order_.front());
    ended_order_.pop_front();
}

// Null: it has not. Only who has seen the open knows its nonce.
const Error* Directory::ended(const wire::GroupOpen& open) const {
    const auto at = ended_.find(open.id);
    return at != ended_.end() && is_same(at->second.first, open) ? &at->second.second : nullptr;
}

std::vector<Listed> Directory::take_waiting(size_t most) {
    std::vector<Listed> out;
    while (out.size() < most && !gatherings_.empty()) {
        out.push_back(gatherings_.begin()->second.entries.begin()->second);
        erase_waiting(out.back().open.id);
    }
    return out;
}

}  // namespace nexar::rendezvous
