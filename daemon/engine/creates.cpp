// See creates.hpp.
#include "engine/creates.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::engine {

void Creates::Entry::note_elsewhere(uint32_t rank, uint64_t tag, std::span<const uint32_t> ranks) {
    if (elsewhere.size() >= elsewhere_max && !elsewhere.contains(rank)) return;
    elsewhere[rank] = "of the ranks " + text_of_list(ranks) + " with tag " + std::to_string(tag);
}

bool Creates::Before::operator()(const List& a, const List& b) const {
    const auto& [a_parent, a_tag, a_ranks] = a;
    const auto& [b_parent, b_tag, b_ranks] = b;
    if (a_parent != b_parent) return a_parent < b_parent;
    if (a_tag != b_tag) return a_tag < b_tag;
    if (a_ranks.size() != b_ranks.size()) return a_ranks.size() < b_ranks.size();
    return std::ranges::lexicographical_compare(a_ranks, b_ranks);
}

Creates::Entry* Creates::find(const GroupId& parent, uint64_t tag, std::span<const uint32_t> ranks) const {
    const auto at = by_list_.find(List{parent, tag, ranks});
    return at == by_list_.end() ? nullptr : at->second->second.get();
}

Creates::Entry* Creates::of_rank(const GroupId& parent, uint32_t rank, uint64_t tag) const {
    const auto at = by_rank_.find({parent, rank, tag});
    return at == by_rank_.end() ? nullptr : at->second;
}

Creates::Found Creates::find_call(SessionId session, uint64_t ticket) const {
    const auto at = by_call_.find({session, ticket});
    return at == by_call_.end() ? Found{} : Found{at->second.entry->second.get(), at->second.rank};
}

bool Creates::is_alone(const Entry& entry) const {
    return std::ranges::next(with_tag(entry.what->parent, entry.what->tag).begin()) ==
           with_tag(entry.what->parent, entry.what->tag).end();
}

const Listed& Creates::ranks_here(const GroupId& parent) const {
    static const Listed none;
    const auto at = ranks_here_.find(parent);
    return at == ranks_here_.end() ? none : at->second;
}

Creates::Entry* Creates::next(const GroupId& parent, Ending& ending) const {
    const auto at = entries_.lower_bound({parent, ending.tag, ending.number});
    if (at == entries_.end() || std::get<GroupId>(at->first) != parent) {
        if (!std::exchange(ending.again, false)) return nullptr;
        ending.tag = ending.number = ending.rank = 0;
        ending.is_on_its_way = false;
        return next(parent, ending);
    }
    ending.is_on_its_way = true;
    const auto& [of, tag, number] = at->first;
    if (tag != ending.tag || number != ending.number) ending.rank = 0;
    ending.tag = tag;
    ending.number = number;
    return at->second.get();
}

bool Creates::any_of(const GroupId& parent) const {
    const auto at = entries_.lower_bound({parent, 0, 0});
    return at != entries_.end() && std::get<GroupId>(at->first) == parent;
}

Creates::Entry& Creates::add(const CreationRef& creation, uint32_t rank, const Call& call, uint64_t user) {
    const auto found = by_list_.find(list_of(*creation));
    const auto at = found != by_list_.end()
                        ? found->second
                        : entries_
                              .emplace(Key{creation->parent, creation->tag, ++last_},
                                       std::make_unique<Entry>(*this, timers_, user, creation))
                              .first;
    if (found == by_list_.end()) by_list_.emplace(list_of(*creation), at);
    Entry& entry = *at->second;
    entry.calls.emplace(rank, call);
    by_call_[{call.session, call.ticket}] = {at, rank};
    by_rank_[{creation->parent, rank, creation->tag}] = &entry;
    const auto size = static_cast<uint32_t>(creation->parent_members.size());
    ranks_here_.try_emplace(creation->parent, std::span<const uint32_t>(), size).first->second.add(rank);
    return entry;
}

bool Creates::remove(SessionId session, uint64_t ticket) {
    const auto at = by_call_.find({session, ticket});
    if (at == by_call_.end()) return false;
    remove(at);
    return true;
}

void Creates::remove(ByCall::iterator at) {
    const auto [entry, rank] = at->second;
    by_call_.erase(at);
    const GroupId parent = std::get<GroupId>(entry->first);
    by_rank_.erase({parent, rank, std::get<1>(entry->first)});
    if (all_of_rank(parent, rank).empty()) ranks_here_.at(parent).remove(rank);
    entry->second->calls.erase(rank);
    if (!entry->second->calls.empty()) return;
    by_list_.erase(list_of(*entry->second->what));
    entries_.erase(entry);
    if (!any_of(parent)) ranks_here_.erase(parent);
}

void Creates::remove_session(SessionId session) {
    for (auto at = by_call_.lower_bound({session, 0}); at != by_call_.end() && at->first.first == session;)
        remove(at++);
}

// Each call is an open, and each entry and each call is found in all ways.
void Creates::check_invariants() const {
    size_t calls = 0;
    for (const auto& [key, entry] : entries_) {
        NEXAR_CHECK(!entry->calls.empty());
        NEXAR_CHECK(find(entry->what->parent, entry->what->tag, entry->what->ranks) == entry.get());
        for (const auto& [rank, call] : entry->calls) {
            const Found found = find_call(call.session, call.ticket);
            NEXAR_CHECK(found.entry == entry.get() && found.rank == rank && entry->what->listed.has(rank));
            NEXAR_CHECK(of_rank(entry->what->parent, rank, entry->what->tag) == entry.get());
            NEXAR_CHECK(ranks_here(entry->what->parent).has(rank));
            NEXAR_CHECK(opening_.number_of(call.session, call.ticket) == call.number);
        }
        calls += entry->calls.size();
    }
    for (const auto& [parent, ranks] : ranks_here_) {
        NEXAR_CHECK(any_of(parent));
        for (auto rank = ranks.first_common(ranks); rank; rank = ranks.first_common(ranks, *rank + 1))
            NEXAR_CHECK(!all_of_rank(parent, *rank).empty());
    }
    NEXAR_CHECK(by_list_.size() == entries_.size());
    NEXAR_CHECK(by_call_.size() == calls && by_rank_.size() == calls);
}

}  // namespace nexar::engine
