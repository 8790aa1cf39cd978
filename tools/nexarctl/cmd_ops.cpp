// nexarctl ops: the operations in flight, their age, and the ranks that they wait for.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/options.hpp"
#include "nexarctl/render.hpp"
#include "nexarctl/table.hpp"
#include "nexarctl/units.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;

namespace {

std::string missing_text(const json& op) {
    const json& missing = list_of(op, "missing");
    std::string out;
    for (const auto& r : missing)
        out += "    not arrived: rank " + std::to_string(count_of(r, "rank")) + " on " +
               printable(node_text(r)) + ", pid " + std::to_string(count_of(r, "pid")) + "\n";
    const uint64_t all = count_of(op, "missing_count");
    if (all > missing.size()) out += "    and " + std::to_string(all - missing.size()) + " more\n";
    const json& unanswered = list_of(op, "unanswered");
    std::string nodes;
    for (const auto& n : unanswered) nodes += (nodes.empty() ? "" : ", ") + printable(node_text(n));
    const uint64_t silent = count_of(op, "unanswered_count");
    if (silent > unanswered.size()) nodes += " and " + std::to_string(silent - unanswered.size()) + " more";
    if (!nodes.empty()) out += "    no answer yet from " + nodes + "\n";
    return out;
}

std::string op_text(const json& op) {
    std::string out = printable(text_of(op, "group")) + " #" + std::to_string(count_of(op, "seq")) + "  " +
                      printable(text_of(op, "op")) + ", for " + milliseconds_text(number_of(op, "age_ms")) +
                      ": " + printable(text_of(op, "phase")) + "\n";
    const std::string priority = printable(text_of(op, "priority"));
    if (!text_of(op, "plan").empty())
        out +=
            "    plan: " + printable(text_of(op, "plan")) + (priority.empty() ? "" : "; " + priority) + "\n";
    return out + missing_text(op);
}

class Ops final : public Command {
    void declare(Options& options) override { options.text("GROUP", group_, "name or id; none: all"); }
    int run(const Context& context) override {
        const json arguments = group_.empty() ? json::object() : json{{"group", group_}};
        return ask_for_own_and_show(context, "ops", arguments, render_ops);
    }
    std::string group_;
};

}  // namespace

std::string render_ops(const json& answer) {
    std::string out;
    for (const auto& op : list_of(answer, "ops")) out += op_text(op);
    for (const auto& m : list_of(answer, "messages"))
        out += printable(text_of(m, "group")) + "  " + printable(text_of(m, "what")) + ", for " +
               milliseconds_text(number_of(m, "age_ms")) + "\n";
    for (const auto& o : list_of(answer, "forming")) out += forming_text(o, /*with_ranks=*/false);
    if (out.empty()) return "no operations in flight on this node\n";
    if (count_of(answer, "omitted") != 0)
        out += std::to_string(count_of(answer, "omitted")) + " more are not shown; name a group\n";
    return out;
}

std::unique_ptr<Command> make_ops() {
    return std::make_unique<Ops>();
}

}  // namespace nexarctl
