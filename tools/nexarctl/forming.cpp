// The groups that are forming, in `groups` and `ops`.
#include <nlohmann/json.hpp>
#include <string>

#include "nexarctl/client.hpp"
#include "nexarctl/render.hpp"
#include "nexarctl/table.hpp"
#include "nexarctl/units.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;

namespace {

std::string rank_text(const json& process) {
    return has(process, "rank") ? "rank " + std::to_string(count_of(process, "rank")) : "any rank";
}

// "3 of 4 ranks came, missing: rank 2"
std::string state_text(const json& o) {
    if (flag_of(o, "being_made")) return "all ranks came, it is being made";
    if (!flag_of(o, "reported"))
        return "which of its " + std::to_string(count_of(o, "size")) + " ranks came is not known here";
    const uint64_t count = count_of(o, "missing_count");
    std::string out = std::to_string(count_of(o, "came_count")) + " of " +
                      std::to_string(count_of(o, "size")) + " ranks came";
    const json& missing = list_of(o, "missing");
    if (count == 0) return out;
    out += ", missing: ";
    if (missing.empty()) return out + std::to_string(count) + " of any rank";
    for (const auto& rank : missing)
        if (rank.is_number_unsigned())
            out += (&rank == &missing.front() ? "rank " : ", ") + std::to_string(rank.get<uint64_t>());
    return out + (count > missing.size() ? " and " + std::to_string(count - missing.size()) + " more" : "");
}

std::string ranks_text(const json& o) {
    const json& came = flag_of(o, "reported") ? list_of(o, "came") : list_of(o, "here");
    std::string out;
    for (const auto& process : came)
        out += "    came: " + rank_text(process) + " on " + printable(node_text(process)) + ", pid " +
               std::to_string(count_of(process, "pid")) + "\n";
    const uint64_t all = count_of(o, "came_count");
    if (all > came.size()) out += "    and " + std::to_string(all - came.size()) + " more\n";
    return out;
}

}  // namespace

std::string forming_text(const json& o, bool with_ranks) {
    std::string out = printable(text_of(o, "name")) + "  forming for " +
                      milliseconds_text(number_of(o, "age_ms")) + ": " + state_text(o);
    out +=
        (has(o, "left_ms") ? "; gives up in " + milliseconds_text(number_of(o, "left_ms")) : std::string()) +
        "; key " + printable(text_of(o, "key")) + "\n";
    if (with_ranks) out += ranks_text(o);
    for (const auto& hint : list_of(o, "hints"))
        if (hint.is_string()) out += "    -> " + printable(hint.get<std::string>()) + "\n";
    return out;
}

}  // namespace nexarctl
