// nexard: arguments, configuration, one Node, its exit status.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "config/accounts.hpp"
#include "config/config.hpp"
#include "config/file.hpp"
#include "core/secret.hpp"
#include "node/node.hpp"
#include "writers/stderr_log.hpp"

extern char** environ;

namespace {

using namespace nexar;

std::map<std::string, std::string> environment() {
    std::map<std::string, std::string> out;
    for (char** e = environ; *e; ++e) {
        const std::string_view entry(*e);
        const size_t equals = entry.find('=');
        if (entry.starts_with("NEXAR_") && equals != std::string_view::npos)
            out.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    }
    return out;
}

std::string flag_of(const config::Key& key) {
    std::string flag = std::string("--") + key.name;
    for (char& c : flag)
        if (c == '_') c = '-';
    return flag;
}

Level level_of(const std::string& text) {
    if (text == "debug") return Level::debug;
    if (text == "warn") return Level::warn;
    if (text == "error") return Level::error;
    return Level::info;
}

// "(0 to 256; default 0; NEXAR_WORKERS)". The default stands in the words that the file would have.
std::string help_of(const config::Key& key, const config::Config& defaults) {
    const std::string value = key.get(defaults);
    return std::string(key.help) + " (" + key.allowed + (value.empty() ? "" : "; default " + value) + "; " +
           key.environment + ")";
}

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;

int complain(const std::string& text, int code = exit_failed) {
    std::fprintf(stderr, "nexard: %s\n", text.c_str());
    return code;
}

// CLI11's sentence, as one line in the form of all others.
int complain(const CLI::App& app, const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return complain(std::string(error.what()) + "; allowed are the flags of nexard --help", exit_usage);
}

// The daemon's own, with as many workers and bulk shards as there may be, and some for sessions.
constexpr rlim_t descriptors_min = 512;

// The soft limit is for programs that use select(). Each session takes two or three. An error's text: there
// are too few to start.
std::string use_all_descriptors() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return "";
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max >= descriptors_min) return "";
    return "the limit on descriptors (RLIMIT_NOFILE) is " + std::to_string(limit.rlim_max) +
           ", and the daemon needs at least " + std::to_string(descriptors_min) +
           ": raise the hard limit (LimitNOFILE of the unit, ulimit -Hn)";
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"nexard: the nexar daemon of this host"};
    std::string file = "/etc/nexar/nexar.toml";
    bool check_only = false, print = false;
    auto* file_option =
        app.add_option("--config", file, "configuration file (TOML; default " + file + ", if it is there)");
    app.add_flag("--check-config", check_only, "read the configuration, say what is wrong with it, and exit");
    app.add_flag("--print-config", print, "print the effective configuration and exit");
    app.set_version_flag("--version", "nexard " NEXAR_VERSION);
    std::map<std::string, std::string> values;
    std::map<std::string, CLI::Option*> options;
    for (const config::Key& key : config::keys())
        options[key.name] = app.add_option(flag_of(key), values[key.name], help_of(key, {}));
    app.footer(
        "Each key is also one of the file (heartbeat_timeout = 5) and an environment variable. A flag wins "
        "over a\n"
        "variable, a variable over the file.");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        return complain(app, error);
    }

    config::Sources sources{file, std::nullopt, environment(), {}};
    auto text = config::read_file(file);
    if (!text) return complain(text.error().text);
    if (!*text && file_option->count() > 0)
        return complain("cannot read " + file + ": there is no such file");
    sources.file_text = std::move(*text);
    for (const auto& [name, option] : options)
        if (option->count() > 0) sources.flags[name] = values[name];
    auto loaded = config::load(sources);
    if (!loaded) return complain(loaded.error().text);
    if (const auto known = config::check_accounts(*loaded); !known) return complain(known.error().text);
    if (print) std::cout << config::to_toml(*loaded);
    if (print || check_only) return 0;

    if (const std::string few = use_all_descriptors(); !few.empty()) return complain(few);
    const auto log = writers::log_to_stderr(level_of(loaded->log_level));
    for (const auto& name : config::unknown_variables(sources.environment))
        log->warn("variable_ignored", {field("name", name), field("allowed", "those of nexard --help")});
    auto node = node::Node::start(*loaded, *log);
    config::wipe_token(sources, *loaded);
    wipe(values["join_token"]);
    if (!node) {
        log->error("start_failed", {field("code", node.error().code), field("why", node.error().text)});
        return 1;
    }
    return (*node)->run();
}
