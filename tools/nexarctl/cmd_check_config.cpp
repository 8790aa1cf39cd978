// nexarctl check-config FILE: checks the file as the daemon would, without a daemon. The unit runs it
// before nexard.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "config/accounts.hpp"
#include "config/config.hpp"
#include "config/file.hpp"
#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/options.hpp"

namespace nexarctl {

namespace {

class CheckConfig final : public Command {
    void declare(Options& options) override {
        options.text("FILE", file_, "a TOML file", /*required=*/true);
        options.flag("--optional", optional_, "a file that does not exist is fine: the defaults hold");
        options.flag("--environment", environment_, "check the NEXAR_... variables of this environment, too");
        options.flag("--print", print_, "print what comes out");
    }
    int run(const Context& context) override {
        const auto config = load();
        if (!config)
            return show_error(context,
                              {exit_failed, config.error().text, std::string(name_of(config.error().code))});
        if (context.json) {
            nlohmann::ordered_json values;
            for (const auto& key : nexar::config::keys())
                if (!key.secret) values[key.name] = key.get(*config);
            std::printf("%s\n", nlohmann::ordered_json{{"file", file_}, {"values", values}}.dump(2).c_str());
        } else {
            std::printf(
                "%s", print_ ? nexar::config::to_toml(*config).c_str()
                             : (file_ + (there_ ? ": good\n" : ": not there, the defaults hold\n")).c_str());
        }
        return exit_ok;
    }
    nexar::Result<nexar::config::Config> load() {
        nexar::config::Sources sources;
        sources.file_path = file_;
        NEXAR_TRY(sources.file_text, nexar::config::read_file(file_));
        there_ = sources.file_text.has_value();
        if (!there_ && !optional_)
            return nexar::fail(nexar::Errc::io, "cannot read " + file_ + ": there is no such file");
        if (environment_)
            for (const auto& key : nexar::config::keys())
                if (const char* const value = std::getenv(key.environment))
                    sources.environment[key.environment] = value;
        NEXAR_TRY(auto config, nexar::config::load(sources));
        NEXAR_TRY_VOID(nexar::config::check_accounts(config));
        return config;
    }

    std::string file_;
    bool optional_ = false, environment_ = false, print_ = false;
    bool there_ = false;
};

}  // namespace

std::unique_ptr<Command> make_check_config() {
    return std::make_unique<CheckConfig>();
}

}  // namespace nexarctl
