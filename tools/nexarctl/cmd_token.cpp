// nexarctl token create, list, revoke. `create` prints the token alone, so that a script can take it.
#include <cstdio>
#include <ctime>
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

class Create final : public Command {
    void declare(Options& options) override {
        options.count("--uses", uses_, 1, 10000, "how many nodes may join with it");
        options.count("--lifetime", lifetime_, 1, 30 * 86400, "seconds until it expires");
    }
    int run(const Context& context) override {
        return ask_and_show(
            context, "token_create", {{"uses", uses_}, {"lifetime_s", lifetime_}},
            [&](const json& made) {
                // Advice is not part of the output that scripts read.
                std::fprintf(stderr,
                             "Anyone with this token can join the cluster: good for %llu %s, for %s. On the "
                             "new node:\n"
                             "    nexarctl cluster join -      # then paste the token, and Enter\n",
                             static_cast<unsigned long long>(uses_), uses_ == 1 ? "node" : "nodes",
                             seconds_text(static_cast<double>(lifetime_)).c_str());
                return text_of(made, "token") + "\n";
            },
            change_timeout_ms);
    }
    uint64_t uses_ = 1, lifetime_ = 3600;
};

class List final : public Command {
    int run(const Context& context) override {
        return ask_and_show(context, "token_list", json::object(),
                            [](const json& tokens) { return render_tokens(tokens, std::time(nullptr)); });
    }
};

class Revoke final : public Command {
    void declare(Options& options) override {
        options.text("ID", id_, "the token's id, as token list shows it", /*required=*/true);
    }
    int run(const Context& context) override {
        return ask_and_show(
            context, "token_revoke", {{"id", id_}},
            [&](const json&) { return "revoked " + printable(id_) + "\n"; }, change_timeout_ms);
    }
    std::string id_;
};

}  // namespace

std::string render_tokens(const json& answer, int64_t now) {
    Table table({"TOKEN", ">USES LEFT", "EXPIRES"});
    for (const auto& t : list_of(answer, "tokens")) {
        const double left = has(t, "expires_in_s") ? number_of(t, "expires_in_s")
                                                   : number_of(t, "expires") - static_cast<double>(now);
        table.row({text_of(t, "id"), std::to_string(count_of(t, "uses_left")),
                   left > 0 ? "in " + seconds_text(left) : "expired"});
    }
    return table.empty() ? "no tokens\n" : table.text();
}

std::unique_ptr<Command> make_token_create() {
    return std::make_unique<Create>();
}
std::unique_ptr<Command> make_token_list() {
    return std::make_unique<List>();
}
std::unique_ptr<Command> make_token_revoke() {
    return std::make_unique<Revoke>();
}

}  // namespace nexarctl
