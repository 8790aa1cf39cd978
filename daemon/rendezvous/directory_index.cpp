// See directory.hpp. Where the opens of the directory are and when something is due, so that no input looks
// at all of them.
#include "rendezvous/directory.hpp"

namespace nexar::rendezvous {

void Directory::enrol(const Entry& entry) {
    origins_[entry.open.id.origin][entry.open.incarnation].insert(entry.open.id);
    ways_.add(entry);
}

void Directory::strike(const Entry& entry) {
    const wire::GroupOpen& open = entry.open;
    ways_.remove(entry);
    const auto origin = origins_.find(open.id.origin);
    const auto opens = origin->second.find(open.incarnation);
    opens->second.erase(open.id);
    if (opens->second.empty()) origin->second.erase(opens);
    if (origin->second.empty()) origins_.erase(origin);
}

void Directory::add_via(Entry& entry, const wire::GroupOpen& again, const NodeId& way) {
    ways_.remove(entry);
    entry.add_via(again, way);
    ways_.add(entry);
}

// True: no other way is left. The caller removes the open then.
bool Directory::drop_via(Entry& entry, const NodeId& way) {
    if (entry.via == way && entry.relays.empty()) return true;
    ways_.remove(entry);
    entry.drop_via(way);
    ways_.add(entry);
    return false;
}

// Null: not listed here.
Directory::Entry* Directory::find(const wire::RequestId& request) {
    ++visited_;
    if (const auto at = where_.find(request); at != where_.end())
        return &gatherings_.at(at->second.first).entries.at(at->second.second);
    const auto attempt = attempt_of_.find(request);
    if (attempt == attempt_of_.end()) return nullptr;
    return &forming_.at(attempt->second.first).entries[attempt->second.second];
}

void Directory::not_before(const wire::GroupKey& key, Gathering& gathering, Time when) {
    if (gathering.not_before != Time{}) retries_.remove(gathering.whose, gathering.not_before, key);
    gathering.not_before = when;
    if (when == Time{}) return;
    gathering.whose = turn_of(gathering.entries.begin()->second);
    retries_.add(gathering.whose, when, key);
}

// The first open of a group stands for all [R33].
TurnOf Directory::turn_of(const Entry& first) {
    return {first.via, {first.open.id.origin, first.open.opener_mark}};
}

void Directory::erase(std::map<wire::GroupKey, Gathering>::iterator gathering) {
    not_before(gathering->first, gathering->second, Time{});
    gatherings_.erase(gathering);
}

// Out of forming_.
Directory::Forming Directory::take(const GroupId& group) {
    Forming forming = std::move(forming_.extract(group).mapped());
    deadlines_.remove(forming.whose, forming.deadline, group);
    for (const Entry& entry : forming.entries) {
        attempt_of_.erase(entry.open.id);
        strike(entry);
    }
    return forming;
}

}  // namespace nexar::rendezvous
