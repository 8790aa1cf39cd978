#include "core/event_limit.hpp"

namespace nexar {

bool EventLimit::allows(std::string_view event, Time now) {
    auto found = limits_by_event_.find(event);
    if (found == limits_by_event_.end())
        found = limits_by_event_.emplace(event, LineLimit(lines_per_second)).first;
    LineLimit& limit = found->second;
    const bool had_left_out = limit.has_left_out();
    const bool allowed = limit.allows(now);
    if (!had_left_out && limit.has_left_out()) ++unreported_;
    return allowed;
}

std::optional<EventLimit::LeftOut> EventLimit::poll(Time now) {
    if (unreported_ == 0) return std::nullopt;
    for (auto& [event, limit] : limits_by_event_) {
        const uint64_t lines = limit.take_left_out(now);
        if (lines == 0) continue;
        --unreported_;
        return LeftOut{event, lines};
    }
    return std::nullopt;
}

}  // namespace nexar
