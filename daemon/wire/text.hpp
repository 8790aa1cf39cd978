// Text from other hosts ends up in logs, tables and JSON: it must be UTF-8 without control characters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace nexar::wire {

// Valid UTF-8 (RFC 3629), no control characters (C0, DEL, C1).
bool is_clean_text(std::string_view text);

// The same text made clean: every offending byte becomes '?', and what is longer is cut between characters.
std::string clean_text(std::string_view text, size_t bytes_max);

}  // namespace nexar::wire
