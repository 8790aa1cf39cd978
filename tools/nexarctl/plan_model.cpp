#include "nexarctl/plan_model.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>

#include "nexarctl/client.hpp"
#include "nexarctl/descriptor.hpp"
#include "nexarctl/plan_report.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;
using nexar::collectives::cost_parameters;
using nexar::collectives::Tuning;

namespace {

constexpr size_t model_file_max = 4096;  // bytes; a model has less than 300
constexpr int tuned_timeout_ms = 1000;   // a plan needs no daemon

// In the form of the file, so that there is one check.
nexar::Result<Tuning> model_from_list(const std::string& numbers) {
    const auto commas = static_cast<size_t>(std::ranges::count(numbers, ','));
    if (commas + 1 != cost_parameters.size())
        return nexar::fail(nexar::Errc::invalid_argument,
                           (numbers + ": " + std::to_string(commas + 1) + " numbers; allowed: " +
                            std::to_string(cost_parameters.size()) + ", " + parameter_names()));
    std::string text, rest = numbers;
    for (const auto& each : cost_parameters) {
        const size_t end = std::min(rest.find(','), rest.size());
        text += std::string(each.name) + " = " + rest.substr(0, end) + "\n";
        rest.erase(0, end + 1);
    }
    auto model = nexar::collectives::tuning_from(text);
    if (!model) return nexar::fail(nexar::Errc::invalid_argument, (numbers + ": " + model.error().text));
    return model;
}

nexar::Result<Tuning> model_from_file(const std::string& path) {
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    std::string text(model_file_max + 1, '\0');
    const ssize_t read = file.fd < 0 ? -1 : ::read(file.fd, text.data(), text.size());
    if (read < 0)
        return nexar::fail(nexar::Errc::invalid_argument,
                           (path + ": " + std::strerror(errno) +
                            "; allowed: a file, as plan_model in a daemon's state_dir, or " +
                            std::to_string(cost_parameters.size()) + " numbers: " + parameter_names()));
    if (static_cast<size_t>(read) > model_file_max)
        return nexar::fail(
            nexar::Errc::invalid_argument,
            (path + ": more than a cost model has; allowed: a file of " +
             std::to_string(cost_parameters.size()) + " lines, as plan_model in a daemon's state_dir"));
    text.resize(static_cast<size_t>(read));
    auto model = nexar::collectives::tuning_from(text);
    if (!model) return nexar::fail(nexar::Errc::invalid_argument, (path + ": " + model.error().text));
    return model;
}

// 0: no race has found one.
uint32_t limit_of(const json& model) {
    return static_cast<uint32_t>(std::min<uint64_t>(count_of(model, nexar::collectives::doubling_name),
                                                    nexar::collectives::doubling_bytes_most));
}

PlanModel of_this_host(const std::string& admin_socket) {
    const Reply reply = ask(admin_socket, "tune", "{}", tuned_timeout_ms);
    const json known = reply.exit == exit_ok ? json::parse(reply.text, nullptr, false) : json();
    if (flag_of(known, "is_tuned") && has(known, "model") && model_of(known["model"]).check())
        return {{model_of(known["model"]), limit_of(known["model"])},
                "tuned: what nexarctl tune measured on this host",
                true};
    const char* const why = reply.exit == exit_ok ? "this host is not tuned (nexarctl tune)"
                            : reply.exit == exit_no_daemon
                                ? "no daemon runs here that could be tuned"
                                : "the daemon here does not show whether it is tuned";
    return {Tuning{}, std::string("built in: ") + why, false};
}

}  // namespace

std::string parameter_names() {
    std::string out;
    for (const auto& each : cost_parameters) out += (out.empty() ? "" : ",") + std::string(each.name);
    return out;
}

nexar::Result<PlanModel> plan_model(const std::string& given, const std::string& admin_socket) {
    if (given.empty()) return of_this_host(admin_socket);
    const bool is_list = given.find_first_not_of("0123456789,") == std::string::npos;
    const auto model = is_list ? model_from_list(given) : model_from_file(given);
    if (!model) return nexar::fail(model.error());
    return PlanModel{*model, "given: --model " + given, true};
}

}  // namespace nexarctl
