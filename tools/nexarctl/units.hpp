// Sizes and times as people read and write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace nexarctl {

// "64M", "16KiB", "1000": powers of 1024. Nothing when it is no size, or too large.
std::optional<uint64_t> parse_bytes(std::string_view text);

std::string bytes_text(uint64_t bytes);    // "1.5 GiB", "512 B"
std::string milliseconds_text(double ms);  // "0.21 ms", "4.2 s", "3 min 20 s"
std::string seconds_text(double seconds);  // "45 s", "2 h 13 min", "5 d 1 h"

}  // namespace nexarctl
