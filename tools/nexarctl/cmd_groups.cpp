// nexarctl groups: the members of the groups that have a rank on this node.
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/options.hpp"
#include "nexarctl/render.hpp"
#include "nexarctl/table.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;

namespace {

std::string group_text(const json& g) {
    std::string out = printable(text_of(g, "name")) + "  id " + text_of(g, "id") + ", " +
                      std::to_string(count_of(g, "size")) + " ranks on " +
                      std::to_string(count_of(g, "nodes")) + " nodes, epoch " +
                      std::to_string(count_of(g, "epoch")) + ", next operation " +
                      std::to_string(count_of(g, "next_op")) + ", in flight " +
                      std::to_string(count_of(g, "ops_in_flight")) + "\n";
    if (has(g, "parent"))
        out += "  child of " + printable(text_of(g["parent"], "name")) + "  id " +
               text_of(g["parent"], "id") + "\n";
    if (g.value("frozen", false)) out += "  frozen: it has failed, and its nodes agree on where it ends\n";
    if (has(g, "failed"))
        out += "  FAILED: " + text_of(g["failed"], "name") + ": " + printable(text_of(g["failed"], "text")) +
               "\n";
    Table table({">  RANK", "NODE", ">PID", ">POSTED", ""});
    for (const auto& r : list_of(g, "ranks"))
        table.row(
            {"  " + std::to_string(count_of(r, "rank")), node_text(r), std::to_string(count_of(r, "pid")),
             // No number may have been received of a remote rank: none is better than a wrong one.
             flag_of(r, "local") || count_of(r, "posted") > 0 ? std::to_string(count_of(r, "posted")) : "",
             flag_of(r, "gone")    ? "gone"
             : flag_of(r, "local") ? "here"
                                   : ""});
    return out + table.text();
}

class Groups final : public Command {
    void declare(Options& options) override { options.text("GROUP", group_, "name or id; none: all"); }
    int run(const Context& context) override {
        const json arguments = group_.empty() ? json::object() : json{{"group", group_}};
        return ask_for_own_and_show(context, "groups", arguments, render_groups);
    }
    std::string group_;
};

}  // namespace

std::string render_groups(const json& answer) {
    const json& groups = list_of(answer, "groups");
    const json& forming = list_of(answer, "forming");
    if (groups.empty() && forming.empty()) return "no groups on this node\n";
    std::string out;
    for (const auto& o : forming) out += forming_text(o, /*with_ranks=*/true);
    for (const auto& g : groups) out += (out.empty() ? "" : "\n") + group_text(g);
    if (count_of(answer, "omitted") != 0)
        out += "\n" + std::to_string(count_of(answer, "omitted")) + " more groups are not shown; name one\n";
    return out;
}

std::unique_ptr<Command> make_groups() {
    return std::make_unique<Groups>();
}

}  // namespace nexarctl
