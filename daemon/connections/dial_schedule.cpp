#include "connections/dial_schedule.hpp"

#include <algorithm>

#include "core/check.hpp"

namespace nexar::connections {

DialSchedule::Entry* DialSchedule::find(const Target& target) {
    const auto at = entries_.find(target);
    return at == entries_.end() ? nullptr : &at->second;
}

DialSchedule::Queue* DialSchedule::queue_of(const Entry& entry) {
    if (entry.state == State::dialling) return &dialling_;
    if (entry.state == State::idle || entry.addresses == 0) return nullptr;
    return entry.fast > 0 ? &fast_ : &slow_;
}

// The entry is in its old queue by its old values: what decides about the queue changes only while it is in
// none.
void DialSchedule::move(const Target& target, Entry& entry, State to, Time at) {
    if (Queue* queue = queue_of(entry)) queue->erase({entry.at, target});
    entry.state = to;
    entry.at = at;
    if (Queue* queue = queue_of(entry)) queue->insert({at, target});
}

void DialSchedule::add(const Target& target, size_t addresses) {
    Entry& entry = entries_[target];
    const auto [state, at] = std::pair(entry.state, entry.at);
    move(target, entry, State::idle, never);
    entry.addresses = addresses;
    if (entry.address >= addresses) entry.address = 0;
    move(target, entry, state, at);
}

void DialSchedule::remove(const Target& target) {
    if (Entry* entry = find(target)) {
        move(target, *entry, State::idle, never);
        entries_.erase(target);
    }
}

void DialSchedule::start(const Target& target, Time at, bool fast, Duration pace) {
    Entry* entry = find(target);
    if (!entry) return;
    move(target, *entry, State::idle, never);
    entry->address = 0;
    entry->rounds = 0;
    entry->fast = fast ? config_.fast_redials : 0;
    entry->pace = std::max(pace, config_.fast_redial);
    move(target, *entry, State::waiting, at);
}

void DialSchedule::start_again(const Target& target, Time at, Duration pace) {
    Entry* entry = find(target);
    if (!entry) return;
    const unsigned rounds = entry->rounds;
    start(target, at, true, pace);
    entry->rounds = rounds;
}

void DialSchedule::settled(const Target& target) {
    if (Entry* entry = find(target)) entry->rounds = 0;
}

void DialSchedule::hasten(const Target& target, Time at) {
    Entry* entry = find(target);
    if (entry && entry->state == State::waiting && at < entry->at) move(target, *entry, State::waiting, at);
}

void DialSchedule::postpone(const Target& target, Time until) {
    if (Entry* entry = find(target)) move(target, *entry, State::waiting, until);
}

void DialSchedule::stop(const Target& target) {
    Entry* entry = find(target);
    if (!entry) return;
    move(target, *entry, State::idle, never);
    entry->fast = 0;
}

Duration DialSchedule::jittered(Duration base) {
    const auto quarter = static_cast<uint64_t>(base.count() / 4);
    return base +
           Duration(static_cast<int64_t>(random_.below(2 * quarter + 1)) - static_cast<int64_t>(quarter));
}

void DialSchedule::failed(const Target& target, Time now) {
    Entry* entry = find(target);
    if (!entry) return;
    move(target, *entry, State::idle, never);
    const bool round_over = ++entry->address >= entry->addresses;
    if (round_over) entry->address = 0;
    if (entry->fast > 0) {
        --entry->fast;
        return move(target, *entry, State::waiting, now + entry->pace);
    }
    Duration wait = config_.backoff_min;
    for (unsigned i = 0; i < entry->rounds && wait < config_.backoff_max; ++i) wait *= 2;
    if (round_over && entry->rounds < 16) ++entry->rounds;
    move(target, *entry, State::waiting,
         now + std::clamp(jittered(wait), config_.backoff_min, config_.backoff_max));
}

std::optional<DialSchedule::Due> DialSchedule::poll_due(Time now) {
    const auto is_due = [&](const Queue& queue, size_t dials_max) {
        return !queue.empty() && queue.begin()->first <= now && dialling_.size() < dials_max;
    };
    const Queue* queue = nullptr;
    if (is_due(fast_, config_.dials_max))
        queue = &fast_;
    else if (is_due(slow_, slow_dials_max()))
        queue = &slow_;
    else
        return std::nullopt;
    const Target target = queue->begin()->second;
    Entry& entry = entries_.at(target);
    move(target, entry, State::dialling, now + config_.dial_timeout);
    return Due{target, entry.address};
}

std::optional<Target> DialSchedule::unanswered(Time now) const {
    if (dialling_.empty() || now < dialling_.begin()->first) return std::nullopt;
    return dialling_.begin()->second;
}

Time DialSchedule::wake_at() const {
    Time next = dialling_.empty() ? never : dialling_.begin()->first;
    if (!fast_.empty() && dialling_.size() < config_.dials_max) next = std::min(next, fast_.begin()->first);
    if (!slow_.empty() && dialling_.size() < slow_dials_max()) next = std::min(next, slow_.begin()->first);
    return next;
}

bool DialSchedule::is_dialling(const Target& target) const {
    const auto at = entries_.find(target);
    return at != entries_.end() && at->second.state == State::dialling;
}

bool DialSchedule::is_waiting(const Target& target) const {
    const auto at = entries_.find(target);
    return at != entries_.end() && at->second.state == State::waiting;
}

void DialSchedule::check_invariants() const {
    size_t queued = 0;
    for (const auto& [target, entry] : entries_) {
        NEXAR_CHECK((entry.state == State::idle) == (entry.at == never));
        const std::pair key(entry.at, target);
        const bool waits = entry.state == State::waiting && entry.addresses > 0;
        NEXAR_CHECK(fast_.contains(key) == (waits && entry.fast > 0));
        NEXAR_CHECK(slow_.contains(key) == (waits && entry.fast == 0));
        NEXAR_CHECK(dialling_.contains(key) == (entry.state == State::dialling));
        NEXAR_CHECK(entry.addresses == 0 || entry.address < entry.addresses);
        queued += waits || entry.state == State::dialling ? 1 : 0;
    }
    NEXAR_CHECK(queued == fast_.size() + slow_.size() + dialling_.size());
    NEXAR_CHECK(dialling_.size() <= config_.dials_max);
}

}  // namespace nexar::connections
