// The daemon's answers as text for people: pure, and tested as such.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nexarctl {

std::string render_status(const nlohmann::ordered_json& status);
std::string render_groups(const nlohmann::ordered_json& groups);
// One that is forming; with_ranks: also each rank that came.
std::string forming_text(const nlohmann::ordered_json& opening, bool with_ranks);
std::string render_ops(const nlohmann::ordered_json& ops);
std::string render_cluster(const nlohmann::ordered_json& cluster);
std::string render_tokens(const nlohmann::ordered_json& tokens, int64_t now);  // now: seconds since 1970

}  // namespace nexarctl
