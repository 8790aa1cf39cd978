// nexarctl doctor: is this machine fit, does its daemon run, can it reach the others; and what to do.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>

#include "config/config.hpp"
#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/doctor.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;

namespace {

class Doctor final : public Command {
    int run(const Context& context) override {
        Facts facts;
        facts.admin_socket.path = context.socket;
        const char* const set = std::getenv("NEXAR_SOCKET");
        facts.session_socket.path = set != nullptr && *set != 0 ? set : nexar::config::Config().socket;
        const Reply reply = ask(context.socket, "doctor", "{}");
        uint32_t pid = 0;
        if (reply.exit == exit_ok) {
            const json answer = json::parse(reply.text, nullptr, false);
            read_daemon(facts, answer);
            dial_tcp(facts);
            pid = static_cast<uint32_t>(count_of(answer, "pid"));
        } else {
            facts.daemon_problem = reply.text;
            if (reply.shut_out && ask(context.status_socket, "status", "{}").exit == exit_ok)
                facts.answers_on = context.status_socket;
        }
        gather_machine(facts, pid);
        gather_network(facts);
        const auto checks = judge(facts);
        if (context.json)
            print_json(checks);
        else
            std::printf("%s", render_checks(checks).c_str());
        return worst(checks) == Outcome::fail ? exit_failed : exit_ok;
    }
    static void print_json(const std::vector<Check>& checks) {
        static constexpr const char* words[] = {"ok", "warn", "fail"};
        json list = json::array();
        for (const auto& c : checks)
            list.push_back({{"check", c.name},
                            {"result", words[static_cast<size_t>(c.outcome)]},
                            {"found", c.found},
                            {"advice", c.advice}});
        const json all = {{"result", words[static_cast<size_t>(worst(checks))]}, {"checks", std::move(list)}};
        std::printf("%s\n", all.dump(2, ' ', false, json::error_handler_t::replace).c_str());
    }
};

}  // namespace

std::unique_ptr<Command> make_doctor() {
    return std::make_unique<Doctor>();
}

}  // namespace nexarctl
