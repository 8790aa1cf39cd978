// One line of the admin protocol and back (docs/protocol/control.md). Pure.
#pragma once

#include <string>
#include <string_view>

#include "core/result.hpp"

namespace nexar::control {

struct Request {
    std::string command;
    std::string arguments;  // a JSON object's text, "{}" when there were none
};
constexpr size_t command_bytes_max = 64;
constexpr size_t nesting_max = 16;

// protocol_error names the fault of the line.
Result<Request> parse_request(std::string_view line);

// {"ok": true, "result": ...} or {"ok": false, "error": {...}}, with the ending newline.
std::string answer_line(const Result<std::string>& json);

}  // namespace nexar::control
