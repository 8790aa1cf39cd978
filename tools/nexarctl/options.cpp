#include "nexarctl/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "nexarctl/client.hpp"
#include "nexarctl/units.hpp"

namespace nexarctl {

namespace {

// In place of CLI::Range, whose texts differ between versions.
template <class Number>
CLI::Validator within(Number least, Number most) {
    std::ostringstream allowed;
    allowed << least << " to " << most;
    const auto check = [least, most, allowed = allowed.str()](const std::string& given) -> std::string {
        Number value{};
        const char* end = given.data() + given.size();
        const auto [stop, error] = std::from_chars(given.data(), end, value);
        if (error == std::errc() && stop == end && value >= least && value <= most) return {};
        return "'" + given + "' is not allowed; allowed: " + allowed;
    };
    return CLI::Validator(check, allowed.str());
}

class CliOptions final : public Options {
  public:
    explicit CliOptions(CLI::App& app) : app_(&app) {}

    void flag(const std::string& names, bool& target, const std::string& help) override {
        app_->add_flag(names, target, help);
    }
    void text(const std::string& names, std::string& target, const std::string& help,
              bool required) override {
        app_->add_option(names, target, help)->required(required);
    }
    void texts(const std::string& names, std::vector<std::string>& target, const std::string& help) override {
        app_->add_option(names, target, help)->expected(1)->take_all();
    }
    void count(const std::string& names, uint64_t& target, uint64_t least, uint64_t most,
               const std::string& help, bool required) override {
        CLI::Option* const made = app_->add_option(names, target, help)->check(within(least, most));
        if (required)
            made->required();  // so its default is nobody's business
        else
            made->capture_default_str();
    }
    void count(const std::string& names, std::optional<uint64_t>& target, uint64_t least, uint64_t most,
               const std::string& help) override {
        app_->add_option(names, target, help)->check(within(least, most));
    }
    void number(const std::string& names, double& target, double least, double most,
                const std::string& help) override {
        app_->add_option(names, target, help)->check(within(least, most));
    }
    void bytes(const std::string& names, uint64_t& target, const std::string& help) override {
        const auto read = [&target](const std::string& given) {
            const auto value = parse_bytes(given);
            if (!value)
                throw CLI::ValidationError("'" + given +
                                           "' is not a size; allowed: a whole number with K, M, G or T");
            target = *value;
        };
        app_->add_option_function<std::string>(names, read, help);
    }
    void choice(const std::string& names, std::string& target, const std::vector<std::string>& allowed,
                const std::string& help) override {
        app_->add_option(names, target, help)->check(CLI::IsMember(allowed))->capture_default_str();
    }

  private:
    CLI::App* app_;
};

// "token create" is the command create of the command token.
CLI::App* add_command(CLI::App& root, std::map<std::string, CLI::App*>& parents, const Entry& entry) {
    const std::string name = entry.name;
    const size_t space = name.find(' ');
    if (space == std::string::npos) return root.add_subcommand(name, entry.help);
    const std::string first = name.substr(0, space);
    CLI::App*& parent = parents[first];
    if (parent == nullptr) {
        parent = root.add_subcommand(
            first, first == "token" ? "tokens with which nodes join" : "this node's cluster");
        parent->require_subcommand(1);
        parent->fallthrough();
    }
    return parent->add_subcommand(name.substr(space + 1), entry.help);
}

std::string names_of(const CLI::App& app) {
    std::string out;
    for (const CLI::App* const command : app.get_subcommands([](const CLI::App*) { return true; }))
        out += (out.empty() ? "" : ", ") + command->get_name();
    return out;
}

// The innermost command that was understood.
const CLI::App* deepest(const CLI::App* app, std::string& name) {
    for (;;) {
        const auto parsed = app->get_subcommands();
        if (parsed.empty()) return app;
        app = parsed.front();
        name += " " + app->get_name();
    }
}

using Commands = std::vector<std::pair<CLI::App*, std::unique_ptr<Command>>>;

// mpirun's option, whose second letter is read as the first one's value.
bool says_np(const CLI::App& app) {
    const CLI::Option* const ranks = app.get_option_no_throw("-n");
    return ranks != nullptr && ranks->results() == std::vector<std::string>{"p"};
}

// CLI11's text names what is missing, but not the command, nor how it read each argument.
int usage_error(const CLI::App& root, const Commands& commands, const Context& context,
                const CLI::ParseError& error) {
    std::string name = root.get_name();
    const CLI::App* const app = deepest(&root, name);
    const auto starts_program = [&](const auto& command) {
        return command.first == app && command.second->takes_rest();
    };
    const auto odd = root.remaining(/*recurse=*/true);
    const bool program = std::ranges::any_of(commands, starts_program);
    std::string text = error.what();
    if (says_np(*app))
        text = "-np is read as -n p: write -n N for N ranks";
    else if (program && !odd.empty() && context.rest.empty())
        // Whatever else is wrong: the program's own options were read as this command's.
        text = "put -- before the command: nexarctl " + app->get_name() + " ... -- " + odd.front() +
               " (what '" + odd.front() + "' starts, and its arguments, come after it)";
    else if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr &&
             app->get_require_subcommand_min() > 0)
        text = (odd.empty() ? "a command is missing" : "there is no command '" + odd.front() + "'") +
               "; allowed: " + names_of(*app);
    else if (!odd.empty())
        text = "'" + odd.front() + "' is not a known argument";
    if (name != root.get_name()) text = name.substr(root.get_name().size() + 1) + ": " + text;
    return show_error(context, {exit_usage, text + " (" + name + " --help)", "INVALID_ARGUMENT"});
}

std::string default_socket() {
    const char* const set = std::getenv("NEXAR_ADMIN_SOCKET");
    return set != nullptr && *set != 0 ? set : "/run/nexar/admin.sock";
}

// As the daemon's key status_socket: beside the admin socket, unless it is set.
std::string status_socket_of(const std::string& admin_socket) {
    const char* const set = std::getenv("NEXAR_STATUS_SOCKET");
    if (set != nullptr && *set != 0) return set;
    return admin_socket.substr(0, admin_socket.rfind('/') + 1) + "status.sock";
}

}  // namespace

int parse_and_run(int argc, char** argv, std::span<const Entry> table) {
    Context context;
    context.socket = default_socket();
    // What follows "--" belongs to another program: it is not parsed.
    int own = 0;
    while (own < argc && std::string(argv[own]) != "--") ++own;
    for (int i = own + 1; i < argc; ++i) context.rest.emplace_back(argv[i]);

    CLI::App root("nexarctl: asks the nexar daemon of this host, starts jobs, examines the machine",
                  "nexarctl");
    root.require_subcommand(1);
    root.set_version_flag("--version", std::string("nexarctl ") + NEXAR_VERSION_TEXT);
    root.add_option("--socket", context.socket, "the daemon's admin socket (NEXAR_ADMIN_SOCKET)")
        ->capture_default_str();
    root.add_flag("--json", context.json, "print JSON, for programs");

    Commands made;
    std::map<std::string, CLI::App*> parents;
    for (const Entry& entry : table) {
        CLI::App* const app = add_command(root, parents, entry);
        app->fallthrough();  // --json and --socket may stand anywhere
        app->footer("--json and --socket PATH of nexarctl may stand here, too.");
        auto command = entry.make();
        CliOptions options(*app);
        command->declare(options);
        made.emplace_back(app, std::move(command));
    }
    try {
        root.parse(own, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) return usage_error(root, made, context, error);
        root.exit(error);  // --help, --version
        return exit_ok;
    }
    for (const auto& [app, command] : made) {
        if (!app->parsed()) continue;
        if (own < argc && !command->takes_rest()) {
            std::fprintf(stderr, "nexarctl %s: nothing may follow '--'\n", app->get_name().c_str());
            return exit_usage;
        }
        context.status_socket = status_socket_of(context.socket);
        for (const CLI::Option* const option : app->get_options())
            if (option->count() > 0) context.given.push_back(option->get_name());
        return command->run(context);
    }
    return exit_usage;
}

}  // namespace nexarctl
