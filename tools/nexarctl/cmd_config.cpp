// nexarctl config: what the running daemon's configuration came out as, secrets left out.
#include <memory>
#include <nlohmann/json.hpp>

#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"

namespace nexarctl {

namespace {

class Config final : public Command {
    int run(const Context& context) override {
        return ask_and_show(context, "config", nlohmann::ordered_json::object(),
                            [](const auto& answer) { return text_of(answer, "toml"); });
    }
};

}  // namespace

std::unique_ptr<Command> make_config() {
    return std::make_unique<Config>();
}

}  // namespace nexarctl
