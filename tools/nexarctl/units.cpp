#include "nexarctl/units.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

namespace nexarctl {

std::optional<uint64_t> parse_bytes(std::string_view text) {
    uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    if (read.ec != std::errc{}) return std::nullopt;
    std::string_view unit(read.ptr, static_cast<size_t>(text.data() + text.size() - read.ptr));
    while (unit.starts_with(' ')) unit.remove_prefix(1);
    if (unit.empty() || unit == "B") return value;
    constexpr std::string_view letters = "KMGT";
    const size_t power = letters.find(unit[0] >= 'a' ? static_cast<char>(unit[0] - 'a' + 'A') : unit[0]);
    const std::string_view ending = unit.substr(1);
    if (power == std::string_view::npos || (ending != "" && ending != "B" && ending != "iB"))
        return std::nullopt;
    const auto shift = 10 * (power + 1);
    if (value > (UINT64_MAX >> shift)) return std::nullopt;
    return value << shift;
}

std::string bytes_text(uint64_t bytes) {
    static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes < 1024) return std::to_string(bytes) + " B";
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 1023.95 && unit < 6) {
        value /= 1024;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof text, value == std::floor(value) ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text;
}

std::string milliseconds_text(double ms) {
    char text[32];
    if (ms < 10)
        std::snprintf(text, sizeof text, "%.2f ms", ms);
    else if (ms < 1000)
        std::snprintf(text, sizeof text, "%.0f ms", ms);
    else if (ms < 60'000)
        std::snprintf(text, sizeof text, "%.1f s", ms / 1000);
    else
        return seconds_text(ms / 1000);
    return text;
}

std::string seconds_text(double seconds) {
    const auto s = static_cast<long long>(seconds);
    const auto two = [](long long a, const char* unit, long long b, const char* small) {
        return std::to_string(a) + unit + (b == 0 ? "" : " " + std::to_string(b) + small);
    };
    if (s < 60) return std::to_string(s) + " s";
    if (s < 3600) return two(s / 60, " min", s % 60, " s");
    if (s < 86400) return two(s / 3600, " h", s % 3600 / 60, " min");
    return two(s / 86400, " d", s % 86400 / 3600, " h");
}

}  // namespace nexarctl
