// nexard: arguments, configuration, one Node, its exit status.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "config/config.hpp"
#include "node/node.hpp"

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

int complain(const Error& error) {
    std::fprintf(stderr, "nexard: %s\n", error.text.c_str());
    return 1;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"nexard: the nexar daemon of this host"};
    std::string file = "/etc/nexar/nexar.toml";
    bool check_only = false, print = false;
    auto* file_option = app.add_option("--config", file, "configuration file (TOML)");
    app.add_flag("--check-config", check_only, "read the configuration, say what is wrong with it, and exit");
    app.add_flag("--print-config", print, "print the effective configuration and exit");
    app.set_version_flag("--version", "nexard " NEXAR_VERSION);
    std::map<std::string, std::string> values;
    std::map<std::string, CLI::Option*> options;
    for (const config::Key& key : config::keys())
        options[key.name] =
            app.add_option(flag_of(key), values[key.name], std::string(key.help) + " (" + key.allowed + ")");
    CLI11_PARSE(app, argc, argv);

    config::Sources sources{file, std::nullopt, environment(), {}};
    if (std::ifstream in(file); in) {
        std::ostringstream text;
        text << in.rdbuf();
        sources.file_text = text.str();
    } else if (file_option->count() > 0) {
        return complain({Errc::bad_config, "cannot read the configuration file " + file, -1, -1, {}});
    }
    for (const auto& [name, option] : options)
        if (option->count() > 0) sources.flags[name] = values[name];
    const auto loaded = config::load(sources);
    if (!loaded) return complain(loaded.error());
    if (print) std::cout << config::to_toml(*loaded);
    if (print || check_only) return 0;

    const auto log = Log::to_stderr(level_of(loaded->log_level));
    auto node = node::Node::start(*loaded, *log);
    if (!node) {
        log->error("start_failed", {field("code", node.error().code), field("why", node.error().text)});
        return 1;
    }
    return (*node)->run();
}
