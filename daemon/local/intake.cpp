#include "local/intake.hpp"

#include <algorithm>
#include <cstddef>

#include "core/operations.hpp"
#include "core/priority.hpp"
#include "shm/words.hpp"

namespace nexar::local {

// The usual case first: nothing is behind it.
std::optional<shm::Entry> Intake::next() {
    if (waiting_.empty() && urgent_.empty()) {
        const auto only = ring_.try_pop();
        urgent_in_row_ = 0;
        if (!only || !ring_.has_entry()) return only;
        place(*only);
    }
    for (size_t n = 0; n < ahead_per_entry && waiting_.size() + urgent_.size() < ahead_max; ++n) {
        const auto entry = ring_.try_pop();
        if (!entry) break;
        place(*entry);
    }
    if (!urgent_.empty() && !has_turn()) {
        const shm::Entry first = urgent_.front().entry;
        urgent_.pop_front();
        ++urgent_in_row_;
        return first;
    }
    const shm::Entry first = waiting_.front().entry;
    waiting_.pop_front();
    urgent_in_row_ = 0;
    return first;
}

// Of those that wait. One that came after an urgent entry stays behind it: they may be of one group, or it
// may be about what that one begins.
bool Intake::has_turn() const {
    return urgent_in_row_ >= urgent_in_row_max && !waiting_.empty() &&
           waiting_.front().number < urgent_.front().number;
}

Intake::Read Intake::read(const shm::Entry& entry) {
    if (entry.kind != NEXAR_ENTRY_SUBMIT || entry.slot >= control_.slots()) return {{entry}, false};
    static_assert(offsetof(nexar_shm_descriptor, group) == 8);
    auto* const words = reinterpret_cast<uint64_t*>(&control_.slot(entry.slot).descriptor);
    const uint64_t first = shm::load_relaxed(words[0]), second = shm::load_relaxed(words[1]);
    const auto kind = static_cast<uint8_t>(first);
    const auto priority = static_cast<uint8_t>(first >> 8 * offsetof(nexar_shm_descriptor, priority));
    const OpRow* row = find_operation(kind);
    const bool is_urgent = row != nullptr && (priority == static_cast<uint8_t>(Priority::critical) ||
                                              (is_barrier(*row) && priority == NEXAR_SHM_PRIORITY_DEFAULT));
    return {{entry, static_cast<uint32_t>(second), row == nullptr}, is_urgent};
}

void Intake::place(const shm::Entry& entry) {
    Read found = read(entry);
    found.entry.number = ++taken_;
    if (found.is_urgent && may_pass(found.entry.group))
        urgent_.push_back(found.entry);
    else
        waiting_.push_back(found.entry);
}

// The calls of one group stay in order: its collectives are numbered by it, its messages matched.
bool Intake::may_pass(uint32_t group) const {
    return std::ranges::none_of(waiting_, [&](const Waiting& w) { return w.is_command || w.group == group; });
}

}  // namespace nexar::local
