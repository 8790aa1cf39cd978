// See waiting.hpp.
#include "rendezvous/waiting.hpp"

namespace nexar::rendezvous {

void Waiting::add_to(Names& names, const wire::GroupOpen& open) {
    names.count += names.keys[open.name].insert(open.key).second;
}

void Waiting::remove_from(Names& names, const wire::GroupOpen& open) {
    const auto at = names.keys.find(open.name);
    if (at == names.keys.end()) return;
    names.count -= at->second.erase(open.key);
    if (at->second.empty()) names.keys.erase(at);
}

void Waiting::add(const wire::GroupOpen& open, bool local) {
    Group& group = groups_[open.key];
    if (!group.opens.insert(open.id).second) return;
    ++opens_;
    if (group.opens.size() == 1) add_to(all_, open);
    if (++group.marks[open.opener_mark] > 1) return;
    add_to(of_mark_[open.opener_mark], open);
    if (!local) shared_[open.opener_mark].insert(open.key);
}

void Waiting::remove(const wire::GroupOpen& open) {
    const auto at = groups_.find(open.key);
    if (at == groups_.end() || at->second.opens.erase(open.id) == 0) return;
    --opens_;
    if (const auto mark = at->second.marks.find(open.opener_mark); --mark->second == 0) {
        at->second.marks.erase(mark);
        const auto names = of_mark_.find(open.opener_mark);
        remove_from(names->second, open);
        if (names->second.keys.empty()) of_mark_.erase(names);
        if (const auto shared = shared_.find(open.opener_mark); shared != shared_.end()) {
            shared->second.erase(open.key);
            if (shared->second.empty()) shared_.erase(shared);
        }
    }
    if (!at->second.opens.empty()) return;
    remove_from(all_, open);
    groups_.erase(at);
}

const Waiting::Names* Waiting::of(uint64_t mark) const {
    const auto at = of_mark_.find(mark);
    return at == of_mark_.end() ? nullptr : &at->second;
}

bool Waiting::contains(const wire::GroupOpen& open) const {
    const auto at = groups_.find(open.key);
    return at != groups_.end() && at->second.opens.contains(open.id);
}

}  // namespace nexar::rendezvous
