// See forming.hpp. It reads the machine's state, and asks the leader in the way of an open that has expired
// [R11]; nothing of the opens depends on it.
#include "rendezvous/forming.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "rendezvous/rendezvous.hpp"
#include "wire/limits.hpp"

namespace nexar::rendezvous {
namespace {

constexpr size_t asked_max = 64;  // keys in one inquiry
// Keys that this node leads, in one answer: each is a walk through a part of the directory.
constexpr size_t looked_up_max = 256;

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

// Opens of the same user and name with another key: their secrets differ, or one has none. That others use
// the name is nothing to him [R30].
uint32_t Directory::others_of(const wire::GroupOpen& open, Time now) const {
    if (open.opener_mark == 0) return 0;
    const auto is_other = [&](const wire::GroupOpen& other) {
        return other.key != open.key && other.opener_mark == open.opener_mark && other.name == open.name;
    };
    size_t others = 0, looked_at = 0;
    for (const auto& [key, gathering] : gatherings_) {
        if (looked_at++ >= config_.names_compared_max) break;
        if (is_other(gathering.entries.begin()->second.open)) others += gathering.entries.size();
    }
    others += static_cast<size_t>(
        std::ranges::count_if(expired_, [&](const Expired& e) { return is_other(e.open) && now < e.until; }));
    return static_cast<uint32_t>(others);
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

}  // namespace

wire::GroupStatus Directory::status(const wire::RequestId& request, const wire::GroupKey& key,
                                    Time now) const {
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
        const uint32_t rank = open.rank < 0 ? UINT32_MAX : static_cast<uint32_t>(open.rank);
        status.present.push_back({open.id, open.id.origin, rank, open.pid, open.incarnation});
    };
    if (const auto at = gatherings_.find(key); at != gatherings_.end())
        for (const auto& [arrival, entry] : at->second.entries) present(entry.open);
    std::optional<Came> came;
    const auto add_expired = [&](const wire::GroupOpen& open) {
        if (!came) came.emplace(status.present);
        const size_t before = status.present.size();
        if (!came->again(open)) present(open);
        if (status.present.size() > before) came->add(status.present.back());
    };
    for (const Expired& expired : expired_) {
        if (expired.open.key != key || now >= expired.until || status.present.size() >= expired.open.size)
            continue;
        add_expired(expired.open);
    }
    if (asked != nullptr) status.others = others_of(*asked, now);
    std::sort(status.present.begin(), status.present.end(), [](const auto& a, const auto& b) {
        return std::tie(a.rank, a.request) < std::tie(b.rank, b.request);
    });
    return status;
}

void Rendezvous::inquire() {
    asked_.clear();
    arrived_.clear();
    std::set<wire::GroupKey> keys;
    for (const auto& [id, own] : own_) {
        if (asked_.size() >= asked_max) return;
        if (leader_of(own) == config_.self || own.reserved || own.withdrawn) continue;
        if (!keys.insert(own.open.key).second) continue;
        asked_.emplace(id, own.open.key);
        send(leader_, wire::GroupStatusRequest{id, own.open.key});
    }
}

void Rendezvous::keep_arrived(const NodeId& from, const wire::GroupStatus& status) {
    const auto own = own_.find(status.id);
    if (from != leader_ || asked_.erase(status.id) == 0 || own == own_.end()) return;
    arrived_[own->second.open.key] = arrived_of(own->second.open.size, status);
}

std::vector<FormingGroup> Rendezvous::forming(Time now, const std::function<bool(SessionId)>& shows) const {
    std::set<wire::GroupKey> shown;
    for (const auto& [id, own] : own_)
        if (!own.withdrawn && shows(own.session)) shown.insert(own.open.key);
    std::map<wire::GroupKey, FormingGroup> groups;
    size_t looked_up = 0;
    for (const auto& [id, own] : own_) {
        if (own.withdrawn || !shown.contains(own.open.key)) continue;
        const auto [at, added] = groups.try_emplace(own.open.key);
        FormingGroup& group = at->second;
        if (added) {
            group.key = own.open.key;
            group.name = own.open.name;
            group.opener_mark = own.open.opener_mark;
            group.size = own.open.size;
            group.local = own.local;
            group.leader = leader_of(own);
            group.since = own.since;
            if (group.leader == config_.self && looked_up++ < looked_up_max)
                group.arrived =
                    arrived_of(group.size, (own.local ? local_ : directory_).status(id, group.key, now));
            else if (const auto known = arrived_.find(group.key); known != arrived_.end())
                group.arrived = known->second;
        }
        group.since = std::min(group.since, own.since);
        group.deadline = std::min(group.deadline, own.deadline);
        group.reserved |= own.reserved.has_value();
        group.here.push_back({own.open.rank, own.open.pid, own.since});
        if (!own.trouble.empty()) group.trouble = own.trouble;
    }
    std::vector<FormingGroup> out;
    for (auto& [key, group] : groups) out.push_back(std::move(group));
    std::ranges::sort(out, {}, [](const FormingGroup& g) { return std::tie(g.name, g.key); });
    return out;
}

}  // namespace nexar::rendezvous
