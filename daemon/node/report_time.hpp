// Times in reports: milliseconds, to the microsecond.
#pragma once

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/time.hpp"

namespace nexar::node::report {

inline double ms(Duration d) {
    return std::round(static_cast<double>(d.count()) / 1e3) / 1e3;
}

inline nlohmann::ordered_json optional_ms(const std::optional<Duration>& d) {
    if (!d) return nullptr;
    return ms(*d);
}

}  // namespace nexar::node::report
