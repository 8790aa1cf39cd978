#include "core/event_limit.hpp"

#include <utility>

namespace nexar {

bool EventLimit::allows(std::string_view event, Time now) {
    auto found = seconds_by_event_.find(event);
    if (found == seconds_by_event_.end()) found = seconds_by_event_.emplace(event, Second{now, 0, 0}).first;
    Second& second = found->second;
    if (now - second.begin >= std::chrono::seconds(1) && second.left_out == 0) second = {now, 0, 0};
    if (second.lines < lines_per_second) {
        ++second.lines;
        return true;
    }
    if (second.left_out++ == 0) ++unreported_;
    return false;
}

std::optional<EventLimit::LeftOut> EventLimit::poll(Time now) {
    if (unreported_ == 0) return std::nullopt;
    for (auto& [event, second] : seconds_by_event_) {
        if (second.left_out == 0 || now - second.begin < std::chrono::seconds(1)) continue;
        --unreported_;
        return LeftOut{event, std::exchange(second, {now, 0, 0}).left_out};
    }
    return std::nullopt;
}

}  // namespace nexar
