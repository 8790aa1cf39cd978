#include "control/request.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace nexar::control {

using nlohmann::json;

namespace {

// The JSON library prints and copies by recursion: a limit on nesting bounds its depth.
bool nests_too_deep(std::string_view line) {
    size_t depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (in_string) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > nesting_max) return true;
        } else if ((c == '}' || c == ']') && depth > 0) {
            --depth;
        }
    }
    return false;
}

std::unexpected<Error> refused(const std::string& why) {
    return fail(Errc::protocol_error,
                why + R"(; a request is one line: {"command": "status", "arguments": {}})");
}

}  // namespace

Result<Request> parse_request(std::string_view line) {
    if (nests_too_deep(line))
        return refused("the request nests deeper than " + std::to_string(nesting_max) + " levels");
    const json document = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (document.is_discarded()) return refused("the request is not JSON");
    if (!document.is_object()) return refused("the request is not a JSON object");
    Request out{"", "{}"};
    for (const auto& [key, value] : document.items()) {
        if (key == "command" && value.is_string())
            out.command = value.get<std::string>();
        else if (key == "arguments" && value.is_object())
            out.arguments = value.dump();
        else
            return refused("the key '" + key.substr(0, command_bytes_max) +
                           "' is unknown or of a wrong type");
    }
    if (out.command.empty() || out.command.size() > command_bytes_max)
        return refused("'command' must have 1 to " + std::to_string(command_bytes_max) + " bytes");
    return out;
}

std::string answer_line(const Result<std::string>& result) {
    std::string line;
    if (result) {
        line = R"({"ok":true,"result":)" + (result->empty() ? std::string("null") : *result) + "}";
        // Between JSON's tokens a newline is a space; inside its strings it cannot be.
        std::replace(line.begin(), line.end(), '\n', ' ');
    } else {
        const Error& error = result.error();
        json inner = {
            {"code", static_cast<int32_t>(error.code)}, {"name", name_of(error.code)}, {"text", error.text}};
        if (error.rank >= 0) inner["rank"] = error.rank;
        if (error.other_rank >= 0) inner["other_rank"] = error.other_rank;
        if (!error.node.empty()) inner["node"] = error.node;
        line = json{{"ok", false}, {"error", inner}}.dump(-1, ' ', false, json::error_handler_t::replace);
    }
    line += '\n';
    return line;
}

}  // namespace nexar::control
