// See forming.hpp. It reads the machine's state, and asks the leader in the way of an open that has expired
// [R11]; nothing of the opens depends on it.
#include "rendezvous/forming.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/rendezvous.hpp"
#include "wire/limits.hpp"

namespace nexar::rendezvous {
namespace {

constexpr size_t asked_max = 64;       // keys in one inquiry: each user's first ones
constexpr size_t asked_also_max = 64;  // beside them
constexpr size_t namesakes_max = 4;    // of them, in one call

}  // namespace

Arrived arrived_of(uint32_t size, const wire::GroupStatus& status) {
    Arrived out;
    std::vector<bool> there(size);
    bool automatic = false;
    for (const wire::GroupMemberRecord& member : status.present) {
        if (member.rank < size)
            there[member.rank] = true;
        else
            automatic = true;
        if (out.came.size() < Arrived::came_max) out.came.push_back(member);
    }
    out.came_count = static_cast<uint32_t>(std::min<size_t>(status.present.size(), size));
    out.missing_count = size - out.came_count;
    for (uint32_t rank = 0; rank < size && !automatic && out.missing.size() < Arrived::missing_max; ++rank)
        if (!there[rank]) out.missing.push_back(rank);
    out.others = status.others;
    return out;
}

void Directory::add_name(const wire::GroupOpen& open) {
    if (open.opener_mark == 0) return;
    Namesakes& namesakes = names_[{open.opener_mark, open.name}];
    ++namesakes.opens;
    ++namesakes.of_key[open.key];
}

void Directory::remove_name(const wire::GroupOpen& open) {
    if (open.opener_mark == 0) return;
    const auto at = names_.find({open.opener_mark, open.name});
    const auto key = at->second.of_key.find(open.key);
    if (--key->second == 0) at->second.of_key.erase(key);
    if (--at->second.opens == 0) names_.erase(at);
}

// Opens of the same user and name with another key: their secrets differ, or one has none. That others use
// the name is nothing to him [R30].
uint32_t Directory::others_of(const wire::GroupOpen& open) const {
    const auto at = open.opener_mark == 0 ? names_.end() : names_.find({open.opener_mark, open.name});
    if (at == names_.end()) return 0;
    const auto same = at->second.of_key.find(open.key);
    return static_cast<uint32_t>(at->second.opens - (same == at->second.of_key.end() ? 0 : same->second));
}

void Directory::keep_expired(const wire::GroupOpen& open, Time now) {
    forget_expired(config_.expired_max - 1, now);
    expired_order_.emplace_back(open.key, next_expired_++);
    expired_.emplace(expired_order_.back(), Expired{open, now + config_.expired_kept});
    add_name(open);
}

// The oldest ones above `most`, and those whose time is over.
void Directory::forget_expired(size_t most, Time now) {
    while (!expired_order_.empty()) {
        const auto oldest = expired_.find(expired_order_.front());
        if (expired_.size() <= most && now < oldest->second.until) return;
        remove_name(oldest->second.open);
        expired_.erase(oldest);
        expired_order_.pop_front();
    }
}

// Calls present(open) for each of the key that has expired lately, the oldest first.
template <class F>
void Directory::for_expired(const wire::GroupKey& key, F present) const {
    for (auto at = expired_.lower_bound({key, 0}); at != expired_.end() && at->first.first == key; ++at)
        present(at->second.open);
}

namespace {

// To compare those that have expired with those that wait: many of each in one report.
class Came {
  public:
    explicit Came(const std::vector<wire::GroupMemberRecord>& present) {
        for (const wire::GroupMemberRecord& member : present) add(member);
    }
    void add(const wire::GroupMemberRecord& member) {
        ranks_.insert(member.rank);
        processes_.insert({member.node, member.pid});
    }
    // One process may open several explicit ranks, so these are compared by rank.
    bool again(const wire::GroupOpen& open) const {
        return open.rank >= 0 ? ranks_.contains(static_cast<uint32_t>(open.rank))
                              : processes_.contains({open.id.origin, open.pid});
    }

  private:
    std::set<uint32_t> ranks_;
    std::set<std::pair<NodeId, uint32_t>> processes_;
};

wire::GroupMemberRecord record_of(const wire::GroupOpen& open) {
    const uint32_t rank = open.rank < 0 ? UINT32_MAX : static_cast<uint32_t>(open.rank);
    return {open.id, open.id.origin, rank, open.pid, open.incarnation};
}

void sort_by_rank(std::span<wire::GroupMemberRecord> members) {
    std::ranges::sort(members, [](const auto& a, const auto& b) {
        return std::tie(a.rank, a.request) < std::tie(b.rank, b.request);
    });
}

}  // namespace

// The listed opens that arrived() shows: in rank order, or in order of arrival.
std::vector<const wire::GroupOpen*> Directory::first_of(const Gathering& gathering) {
    std::vector<const wire::GroupOpen*> out;
    const auto add = [&](const Entry& entry) { out.push_back(&entry.open); };
    const auto is_full = [&] { return out.size() == Arrived::came_max; };
    for (auto at = gathering.taken.begin(); at != gathering.taken.end() && !is_full(); ++at)
        add(gathering.entries.at(at->second));
    for (auto at = gathering.entries.begin();
         at != gathering.entries.end() && gathering.taken.empty() && !is_full(); ++at)
        add(at->second);
    visited_ += out.size();
    return out;
}

std::vector<uint32_t> Directory::first_missing(const Gathering& gathering, uint32_t size,
                                               const std::set<int64_t>& expired) {
    std::vector<uint32_t> out;
    auto taken = gathering.taken.begin();
    for (uint32_t rank = 0; rank < std::min<uint32_t>(size, Arrived::ranks_looked_at_max); ++rank) {
        if (out.size() == Arrived::missing_max) break;
        ++visited_;
        const bool there = taken != gathering.taken.end() && taken->first == rank;
        if (there) ++taken;
        if (!there && !expired.contains(rank)) out.push_back(rank);
    }
    return out;
}

// One process may open several explicit ranks, so these are compared by rank.
Arrived Directory::arrived(const wire::GroupOpen& open, Time now) {
    forget_expired(config_.expired_max, now);
    static const Gathering nobody{};
    const auto listed = gatherings_.find(open.key);
    const Gathering& gathering = listed == gatherings_.end() ? nobody : listed->second;
    Arrived out;
    out.others = others_of(open);
    std::set<std::pair<NodeId, uint32_t>> processes;  // with automatic ranks
    std::set<int64_t> expired;                        // with explicit ones
    for (const wire::GroupOpen* one : first_of(gathering)) {
        out.came.push_back(record_of(*one));
        if (one->rank < 0) processes.insert({one->id.origin, one->pid});
    }
    size_t count = gathering.entries.size();
    for_expired(open.key, [&](const wire::GroupOpen& one) {
        ++visited_;
        if (count >= open.size) return;
        const bool again = one.rank < 0 ? !processes.insert({one.id.origin, one.pid}).second
                                        : gathering.taken.contains(static_cast<uint32_t>(one.rank)) ||
                                              !expired.insert(one.rank).second;
        if (again) return;
        ++count;
        if (out.came.size() < Arrived::came_max) out.came.push_back(record_of(one));
    });
    sort_by_rank(out.came);
    out.came_count = static_cast<uint32_t>(std::min<size_t>(count, open.size));
    out.missing_count = open.size - out.came_count;
    if (open.rank >= 0) out.missing = first_missing(gathering, open.size, expired);
    return out;
}

wire::GroupStatus Directory::status(const wire::RequestId& request, const wire::GroupKey& key, Time now) {
    forget_expired(config_.expired_max, now);
    wire::GroupStatus status{request, 0, {}, 0};
    const wire::GroupOpen* asked = nullptr;  // the open of the request; of its key
    std::set<std::pair<NodeId, Incarnation>> incarnations;
    auto present = [&](const wire::GroupOpen& open) {
        status.size = open.size;
        if (asked == nullptr || open.id == request) asked = &open;
        // The limits of a message: further opens are left out.
        if (status.present.size() >= wire::ranks_max) return;
        const std::pair incarnation(open.id.origin, open.incarnation);
        if (incarnations.size() >= wire::group_nodes_max && !incarnations.contains(incarnation)) return;
        incarnations.insert(incarnation);
        status.present.push_back(record_of(open));
    };
    if (const auto at = gatherings_.find(key); at != gatherings_.end())
        for (const auto& [arrival, entry] : at->second.entries) present(entry.open);
    const size_t waiting = status.present.size();
    std::optional<Came> came;
    for_expired(key, [&](const wire::GroupOpen& expired) {
        if (status.present.size() >= expired.size) return;
        if (!came) came.emplace(status.present);
        const size_t before = status.present.size();
        if (!came->again(expired)) present(expired);
        if (status.present.size() > before) came->add(status.present.back());
    });
    if (asked != nullptr) status.others = others_of(*asked);
    status.gave_up = static_cast<uint32_t>(status.present.size() - waiting);
    const std::span all(status.present);
    sort_by_rank(all.first(waiting));
    sort_by_rank(all.subspan(waiting));
    return status;
}

const Waiting::Names* Rendezvous::names_of(const FormingScope& scope) const {
    return scope.mark == 0 ? &waiting_.all() : waiting_.of(scope.mark);
}

// The first of a key's opens asks for all.
void Rendezvous::ask_for(const wire::GroupKey& key) {
    ++visited_;
    const wire::RequestId& first = *waiting_.group(key).opens.begin();
    const Own& own = own_.at(first);
    if (leader_of(own) == config_.self || own.reserved || arrived_.contains(key)) return;
    if (asked_.emplace(first, key).second) send(leader_, wire::GroupStatusRequest{first, key});
}

void Rendezvous::inquire(const FormingScope& scope) {
    asked_.clear();
    arrived_.clear();
    if (leader_ == config_.self) return;
    inquire_also(scope);
    const auto& users = waiting_.shared();
    const size_t each = std::max<size_t>(1, asked_max / std::max<size_t>(1, users.size()));
    size_t looks = 0;
    for (const auto& [mark, keys] : users) {
        size_t n = 0;
        for (auto at = keys.begin(); at != keys.end() && n < each && looks < asked_max; ++at, ++n, ++looks)
            ask_for(*at);
    }
}

void Rendezvous::inquire_also(const FormingScope& scope) {
    const Waiting::Names* const names = scope.name.empty() ? nullptr : names_of(scope);
    if (names == nullptr) return;
    const auto named = names->keys.find(scope.name);
    if (named == names->keys.end()) return;
    size_t n = 0;
    for (auto at = named->second.begin(); at != named->second.end() && n < namesakes_max; ++at, ++n)
        if (asked_.size() < asked_max + asked_also_max) ask_for(*at);
}

void Rendezvous::keep_arrived(const NodeId& from, const wire::GroupStatus& status) {
    const auto own = own_.find(status.id);
    if (from != leader_ || asked_.erase(status.id) == 0 || own == own_.end()) return;
    arrived_[own->second.open.key] = arrived_of(own->second.open.size, status);
}

FormingGroup Rendezvous::forming_group(const wire::GroupKey& key, Time now) {
    const Waiting::Group& waiting = waiting_.group(key);
    const Own& first = own_.at(*waiting.opens.begin());
    FormingGroup group;
    group.key = key;
    group.name = first.open.name;
    group.opener_mark = first.open.opener_mark;
    group.size = first.open.size;
    group.local = first.local;
    group.leader = leader_of(first);
    group.since = first.since;
    if (group.leader == config_.self)
        group.arrived = directory_of(first).arrived(first.open, now);
    else if (const auto known = arrived_.find(key); known != arrived_.end())
        group.arrived = known->second;
    group.here_count = waiting.opens.size();
    for (const wire::RequestId& id : waiting.opens) {
        if (group.here.size() == FormingGroup::here_max) break;
        ++visited_;
        const Own& own = own_.at(id);
        group.deadline = std::min(group.deadline, own.deadline);
        group.reserved |= own.reserved.has_value();
        group.here.push_back({own.open.rank, own.open.pid, own.since});
        if (!own.trouble.empty()) group.trouble = own.trouble;
    }
    return group;
}

FormingList Rendezvous::forming(Time now, const FormingScope& scope) {
    FormingList out;
    const Waiting::Names* const names = names_of(scope);
    if (names == nullptr) return out;
    auto at = scope.name.empty() ? names->keys.begin() : names->keys.find(scope.name);
    const auto end = scope.name.empty() || at == names->keys.end() ? names->keys.end() : std::next(at);
    const size_t all = scope.name.empty() ? names->count : at == end ? 0 : at->second.size();
    const uint64_t before = visited();
    for (; at != end; ++at)
        for (const wire::GroupKey& key : at->second) {
            if (out.groups.size() == scope.groups_max || visited() - before >= scope.rows_max) {
                out.omitted = all - out.groups.size();
                return out;
            }
            out.groups.push_back(forming_group(key, now));
        }
    return out;
}

}  // namespace nexar::rendezvous
