// One request to the daemon over its admin socket (docs/protocol/control.md), with a deadline.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "nexarctl/command.hpp"

namespace nexarctl {

constexpr int answer_timeout_ms = 5000;
constexpr int change_timeout_ms = 60'000;  // a change is answered when it is on disk, which may be slow

struct Reply {
    int exit = exit_ok;  // exit_ok: `text` is the result's JSON; otherwise a sentence for people
    std::string text;
    std::string name;       // of the daemon's error, "NOT_FOUND"
    bool shut_out = false;  // the caller may not use the socket, or does not have it: another one may do
};
Reply ask(const std::string& socket, const std::string& command, const std::string& arguments,
          int timeout_ms = answer_timeout_ms);

// A question to the admin socket; of a user who may not use it, to the status socket, which answers about
// what is his own, after a line on stderr that says so.
Reply ask_for_own(const Context& context, const std::string& command, const std::string& arguments);

// Asks, and prints the answer: as JSON, or as `render` makes it. The exit code.
using Render = std::function<std::string(const nlohmann::ordered_json& result)>;
int ask_and_show(const Context& context, const std::string& command, const nlohmann::ordered_json& arguments,
                 const Render& render, int timeout_ms = answer_timeout_ms);
int ask_for_own_and_show(const Context& context, const std::string& command,
                         const nlohmann::ordered_json& arguments, const Render& render);

// An error, for people on stderr, or with --json as an object on stdout.
int show_error(const Context& context, const Reply& reply);

// Reading answers of a daemon that may be older or newer: what is missing is empty or 0.
std::string text_of(const nlohmann::ordered_json& object, const char* key);
double number_of(const nlohmann::ordered_json& object, const char* key);
uint64_t count_of(const nlohmann::ordered_json& object, const char* key);
bool flag_of(const nlohmann::ordered_json& object, const char* key);
bool has(const nlohmann::ordered_json& object, const char* key);  // there, and not null
const nlohmann::ordered_json& list_of(const nlohmann::ordered_json& object, const char* key);
// "hostname (3f2a9c01d2e4)", or the short id alone.
std::string node_text(const nlohmann::ordered_json& object);

}  // namespace nexarctl
