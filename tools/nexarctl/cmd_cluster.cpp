// nexarctl cluster init, join, leave, show.
#include <cstdio>
#include <cstdlib>
#include <iostream>
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

constexpr int join_timeout_ms = 60'000;  // the daemon talks to the issuer meanwhile

class Init final : public Command {
    void declare(Options& options) override { options.text("--name", name_, "the cluster's name"); }
    int run(const Context& context) override {
        const json arguments = name_.empty() ? json::object() : json{{"name", name_}};
        return ask_and_show(
            context, "cluster_init", arguments,
            [](const json& made) {
                return "made the cluster " + text_of(made, "cluster") + "; this node is " +
                       text_of(made, "node").substr(0, 12) +
                       "\nnext: nexarctl token create, then on each other node: "
                       "nexarctl cluster join -, which reads the token\n";
            },
            change_timeout_ms);
    }
    std::string name_;
};

class Join final : public Command {
    void declare(Options& options) override {
        options.text("TOKEN", token_,
                     "from token create; '-' reads it from standard input; none: NEXAR_CLUSTER_TOKEN. "
                     "Written here, other users of this host can read it (ps)");
    }
    int run(const Context& context) override {
        // On the command line other users of this machine can read it; the other two ways are for them.
        if (token_ == "-") std::getline(std::cin, token_);
        if (token_.empty())
            if (const char* const set = std::getenv("NEXAR_CLUSTER_TOKEN")) token_ = set;
        if (token_.empty())
            return show_error(context, {exit_usage,
                                        "cluster join needs a token: 'cluster join -' reads it from standard "
                                        "input, else it is looked for in NEXAR_CLUSTER_TOKEN",
                                        "INVALID_ARGUMENT"});
        return ask_and_show(
            context, "cluster_join", {{"token", token_}},
            [](const json& joined) {
                return "joined; this node is " + text_of(joined, "node").substr(0, 12) + "\n";
            },
            join_timeout_ms);
    }
    std::string token_;
};

class Leave final : public Command {
    void declare(Options& options) override {
        options.flag("--force", force_,
                     "also while processes have sessions here, or if this node made the cluster");
    }
    int run(const Context& context) override {
        return ask_and_show(
            context, "cluster_leave", force_ ? json{{"force", true}} : json::object(),
            [](const json& left) {
                return "left the cluster; this node was " + text_of(left, "node").substr(0, 12) +
                       ", its keys are in " + printable(text_of(left, "set_aside")) +
                       "\nnext: nexarctl cluster join -, or cluster init\n";
            },
            change_timeout_ms);
    }
    bool force_ = false;
};

class Show final : public Command {
    int run(const Context& context) override {
        return ask_and_show(context, "cluster_show", json::object(), render_cluster);
    }
};

std::string joined(const json& list) {
    std::string out;
    for (const auto& item : list)
        if (item.is_string()) out += (out.empty() ? "" : ", ") + item.get<std::string>();
    return out;
}

}  // namespace

std::string render_cluster(const json& c) {
    if (!has(c, "cluster")) return "this node is in no cluster: nexarctl cluster init, or cluster join -\n";
    std::string out = aligned({{"cluster", text_of(c, "name") + " (" + text_of(c, "cluster") + ")"},
                               {"root key", text_of(c, "root_key_hash")},
                               {"this node", text_of(c, "node")},
                               {"issuer", flag_of(c, "issuer") ? "yes: tokens are made here" : "no"}});
    Table table({"MEMBER", "ADDRESSES"});
    for (const auto& m : list_of(c, "members")) table.row({node_text(m), joined(list_of(m, "addresses"))});
    return out + "\n" + table.text();
}

std::unique_ptr<Command> make_cluster_init() {
    return std::make_unique<Init>();
}
std::unique_ptr<Command> make_cluster_join() {
    return std::make_unique<Join>();
}
std::unique_ptr<Command> make_cluster_leave() {
    return std::make_unique<Leave>();
}
std::unique_ptr<Command> make_cluster_show() {
    return std::make_unique<Show>();
}

}  // namespace nexarctl
