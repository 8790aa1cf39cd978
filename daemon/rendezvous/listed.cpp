#include "rendezvous/listed.hpp"

#include <algorithm>
#include <utility>

#include "core/check.hpp"

namespace nexar::rendezvous {

void FormerLeaders::add(const NodeId& leader) {
    constexpr size_t most = 4;
    if (leader.is_zero() || has(leader)) return;
    if (leaders_.size() == most) leaders_.erase(leaders_.begin());
    leaders_.push_back(leader);
}

bool FormerLeaders::has(const NodeId& node) const {
    return std::ranges::find(leaders_, node) != leaders_.end();
}

bool is_same(const wire::GroupOpen& a, const wire::GroupOpen& b) {
    return a.id == b.id && a.key == b.key && a.size == b.size && a.rank == b.rank &&
           a.incarnation == b.incarnation && a.nonce == b.nonce;
}

// The direct connection wins over relays; among relays the first, while it lasts. What was passed on stays a
// way beside it: the open's node may have noticed first that the connection is cut.
void Listed::add_via(const wire::GroupOpen& again, const NodeId& way) {
    if (came_through(way) || !is_same(open, again)) return;
    relays.insert(way == open.id.origin ? std::exchange(via, way) : way);
}

bool Listed::drop_via(const NodeId& way) {
    if (via != way) {
        relays.erase(way);
        return false;
    }
    if (relays.empty()) return true;
    via = relays.extract(relays.begin()).value();
    return false;
}

namespace {

// Of the opens that one node passes on, those of one other node are at most this part: who lists without end
// by way of another node leaves it most of its share.
constexpr size_t origins_per_way = 16;

}  // namespace

void Ways::add(const Listed& listed) {
    const wire::RequestId& id = listed.open.id;
    const auto put = [&](const NodeId& name) {
        Way& way = ways_[name];
        way.of_origin[id.origin].insert(id);
        way.passed_on += name != id.origin;
    };
    put(listed.via);
    for (const NodeId& relay : listed.relays) put(relay);
}

void Ways::remove(const Listed& listed) {
    const wire::RequestId& id = listed.open.id;
    const auto drop = [&](const NodeId& name) {
        const auto way = ways_.find(name);
        const auto opens = way->second.of_origin.find(id.origin);
        opens->second.erase(id);
        way->second.passed_on -= name != id.origin;
        if (opens->second.empty()) way->second.of_origin.erase(opens);
        if (way->second.of_origin.empty()) ways_.erase(way);
    };
    drop(listed.via);
    for (const NodeId& relay : listed.relays) drop(relay);
}

std::optional<size_t> Ways::full(const NodeId& way, const NodeId& origin, size_t most, bool passed_on) const {
    const auto at = ways_.find(way);
    if (at == ways_.end()) return {};
    if (way != origin && at->second.passed_on >= most) return most;
    const size_t share = passed_on ? std::max<size_t>(1, most / origins_per_way) : most;
    const auto opens = at->second.of_origin.find(origin);
    if (opens == at->second.of_origin.end() || opens->second.size() < share) return {};
    return share;
}

std::vector<wire::RequestId> Ways::of(const NodeId& way) const {
    std::vector<wire::RequestId> out;
    const auto at = ways_.find(way);
    if (at == ways_.end()) return out;
    for (const auto& [origin, opens] : at->second.of_origin)
        out.insert(out.end(), opens.begin(), opens.end());
    return out;
}

size_t Ways::count(const NodeId& way, const NodeId& origin) const {
    const auto at = ways_.find(way);
    if (at == ways_.end()) return 0;
    const auto opens = at->second.of_origin.find(origin);
    return opens == at->second.of_origin.end() ? 0 : opens->second.size();
}

size_t Ways::size() const {
    size_t out = 0;
    for (const auto& [name, way] : ways_)
        for (const auto& [origin, opens] : way.of_origin) out += opens.size();
    return out;
}

const Listed* Relayed::find(const wire::RequestId& request) const {
    const auto at = opens_.find(request);
    return at == opens_.end() ? nullptr : &at->second;
}

void Relayed::put(Listed listed) {
    erase(listed.open.id);
    ways_.add(listed);
    const wire::RequestId id = listed.open.id;
    opens_.emplace(id, std::move(listed));
}

void Relayed::add_via(const wire::GroupOpen& open, const NodeId& way) {
    const auto at = opens_.find(open.id);
    if (at == opens_.end()) return;
    ways_.remove(at->second);
    at->second.add_via(open, way);
    ways_.add(at->second);
}

bool Relayed::drop_via(const wire::RequestId& request, const NodeId& way) {
    const auto at = opens_.find(request);
    if (at == opens_.end()) return false;
    ways_.remove(at->second);
    const bool last = at->second.drop_via(way);
    if (last)
        opens_.erase(at);
    else
        ways_.add(at->second);
    return last;
}

void Relayed::erase(const wire::RequestId& request) {
    const auto at = opens_.find(request);
    if (at == opens_.end()) return;
    ways_.remove(at->second);
    opens_.erase(at);
}

void Relayed::set_sent(const wire::RequestId& request, const NodeId& leader, uint64_t change) {
    Listed& listed = opens_.at(request);
    if (listed.leader != leader) listed.former_leaders.add(listed.leader);
    listed.leader = leader;
    listed.sent_in = change;
}

const Listed* Relayed::after(const wire::RequestId& request) const {
    const auto at = opens_.upper_bound(request);
    return at == opens_.end() ? nullptr : &at->second;
}

Listed Relayed::take_first() {
    Listed out = opens_.begin()->second;
    erase(out.open.id);
    return out;
}

void Relayed::check_invariants() const {
    size_t ways = 0;
    for (const auto& [id, listed] : opens_) {
        NEXAR_CHECK(listed.open.id == id);
        ways += 1 + listed.relays.size();
    }
    NEXAR_CHECK(ways == ways_.size());
}

}  // namespace nexar::rendezvous
