#include "rendezvous/listed.hpp"

#include <utility>

#include "core/check.hpp"

namespace nexar::rendezvous {

bool is_same(const wire::GroupOpen& a, const wire::GroupOpen& b) {
    return a.id == b.id && a.key == b.key && a.size == b.size && a.rank == b.rank &&
           a.incarnation == b.incarnation && a.nonce == b.nonce;
}

// The direct connection wins over relays; among relays the first, while it lasts.
void Listed::add_via(const wire::GroupOpen& again, const NodeId& way) {
    const NodeId& origin = open.id.origin;
    if (via == origin || via == way) return;
    if (way == origin) {
        via = way;
        relays.clear();
    } else if (is_same(open, again)) {
        relays.insert(way);
    }
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

void Ways::add(const Listed& listed) {
    opens_[listed.via].insert(listed.open.id);
    for (const NodeId& relay : listed.relays) opens_[relay].insert(listed.open.id);
}

void Ways::remove(const Listed& listed) {
    const auto drop = [&](const NodeId& way) {
        const auto at = opens_.find(way);
        at->second.erase(listed.open.id);
        if (at->second.empty()) opens_.erase(at);
    };
    drop(listed.via);
    for (const NodeId& relay : listed.relays) drop(relay);
}

size_t Ways::count(const NodeId& way) const {
    const auto at = opens_.find(way);
    return at == opens_.end() ? 0 : at->second.size();
}

std::vector<wire::RequestId> Ways::of(const NodeId& way) const {
    const auto at = opens_.find(way);
    if (at == opens_.end()) return {};
    return {at->second.begin(), at->second.end()};
}

size_t Ways::size() const {
    size_t out = 0;
    for (const auto& [way, opens] : opens_) out += opens.size();
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

std::map<wire::RequestId, Listed> Relayed::take_all() {
    ways_ = {};
    return std::exchange(opens_, {});
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
