// nexarctl tune: measures with a rank on each host, prints what it found, and has the daemon keep it. It
// changes the choice of algorithms of groups that are made from then on [O6], and of no group that there is.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/daemon_check.hpp"
#include "nexarctl/node_index.hpp"
#include "nexarctl/options.hpp"
#include "nexarctl/plan_report.hpp"
#include "nexarctl/secret_file.hpp"
#include "nexarctl/table.hpp"
#include "nexarctl/tune_probes.hpp"
#include "nexarctl/units.hpp"

namespace nexarctl {

using json = nlohmann::ordered_json;
namespace coll = nexar::collectives;

namespace {

constexpr uint64_t tuned_hosts_max = 1024;

std::string limit_text(const json& model) {
    return has(model, coll::doubling_name) ? std::to_string(count_of(model, coll::doubling_name))
                                           : "built in";
}

std::string render_race(const json& report) {
    const json& raced = list_of(report, "raced");
    if (raced.empty())
        return "no race of recursive doubling and ring: " + text_of(report, "why_no_race") + "\n";
    Table table({">BYTES", ">RECURSIVE DOUBLING", ">RING"});
    for (const json& each : raced)
        table.row({bytes_text(count_of(each, "bytes")),
                   milliseconds_text(number_of(each, "doubling_ns") / 1e6),
                   milliseconds_text(number_of(each, "ring_ns") / 1e6)});
    return "\n" + table.text() + "\n";
}

// There is no model in use then: groups go by size.
std::string render_forgotten(const json& report, bool was_tuned) {
    const std::string by_size = "groups that this host's daemon makes from now on choose by size\n";
    if (!was_tuned) return "this host was not tuned, so nothing was changed: " + by_size;
    Table table({"PARAMETER", ">FORGOTTEN", "WHAT IT IS"});
    for (const auto& each : coll::cost_parameters)
        table.row({each.name, std::to_string(count_of(report["before"], each.name)), each.meaning});
    if (has(report["before"], coll::doubling_name))
        table.row({coll::doubling_name, limit_text(report["before"]), coll::doubling_meaning});
    return table.text() + "forgotten: " + by_size;
}

std::string render_tuning(const json& report) {
    const bool was_tuned = flag_of(report, "was_tuned");
    if (flag_of(report, "forgotten")) return render_forgotten(report, was_tuned);
    Table table({"PARAMETER", was_tuned ? ">BEFORE" : ">BUILT IN", ">NOW", "WHAT IT IS"});
    for (const auto& each : coll::cost_parameters)
        table.row({each.name, std::to_string(count_of(report["before"], each.name)),
                   std::to_string(count_of(report["model"], each.name)), each.meaning});
    table.row({coll::doubling_name, limit_text(report["before"]), limit_text(report["model"]),
               coll::doubling_meaning});
    std::string out = table.text() + render_race(report);
    if (has(report, "host_ns"))
        out += "an operation that stays on the host takes " +
               milliseconds_text(number_of(report, "host_ns") / 1e6) +
               "; times are medians, of all hosts the " + "slowest\n";
    const bool stored = flag_of(report, "stored");
    out += stored ? "kept by this host's daemon, for groups that it makes from now on\n"
                  : "nothing was changed: a dry run, as on one host so on all\n";
    return out;
}

class Tune final : public Command {
    void declare(Options& options) override {
        options.count("--nodes", nodes_, 2, tuned_hosts_max, "hosts on which this command is started");
        options.count("--node-index", node_index_, 0, tuned_hosts_max - 1,
                      "index of this host, from 0; needed to measure");
        options.text("--secret-file", secret_file_, "a secret, the same on all hosts");
        options.number("--seconds", seconds_, 1, 60,
                       "about how long it measures; the longest that a host was given");
        options.flag("--dry-run", dry_run_, "measure and show, and change nothing");
        options.flag("--force", force_,
                     "also while operations of others are in flight, which it then measures");
        options.flag("--forget", forget_,
                     "back to the choice by size: measures nothing, for this host alone");
    }

    int run(const Context& context) override {
        const std::string wrong = complaint();
        if (!wrong.empty()) return show_error(context, {exit_usage, "tune: " + wrong, "INVALID_ARGUMENT"});
        Reply current =
            ask(context.socket, "tune", forget_ ? R"({"forget": true})" : "{}", change_timeout_ms);
        if (current.exit != exit_ok) return show_error(context, current);
        const json known = json::parse(current.text, nullptr, false);
        if (!has(known, "model") || !has(known, "before")) return show_error(context, other_version(context));
        if (forget_)
            return show(context, {{"model", known["model"]},
                                  {"before", known["before"]},
                                  {"was_tuned", flag_of(known, "was_tuned")},
                                  {"forgotten", true},
                                  {"stored", true}});
        if (auto why = refusal(context); why.exit != exit_ok) return show_error(context, why);
        auto job = job_of(context);
        if (!job) return show_error(context, {exit_usage, "tune: " + job.error().text, "INVALID_ARGUMENT"});
        const auto tuning = measure(*job);
        if (!tuning) return show_error(context, {exit_failed, "tune: " + tuning.error().text, "IO"});
        json report{{"model", coll::object_of<json>(tuning->found)},
                    {"before", known["model"]},
                    {"raced", list_of_raced(tuning->raced)},
                    {"why_no_race", tuning->why_no_race},
                    {"host_ns", tuning->times.host_ns},
                    {"small_bytes", tuning->small_bytes},
                    {"bulk_bytes", tuning->bulk_bytes},
                    {"was_tuned", flag_of(known, "is_tuned")},
                    {"stored", !tuning->is_dry}};
        if (!tuning->is_dry) {
            const json change{{"model", report["model"]}};
            const Reply kept = ask(context.socket, "tune", change.dump(), change_timeout_ms);
            if (kept.exit != exit_ok) return show_error(context, kept);
        }
        return show(context, report);
    }

    static json list_of_raced(const std::vector<Raced>& raced) {
        json out = json::array();
        for (const Raced& each : raced)
            out.push_back(
                {{"bytes", each.bytes}, {"doubling_ns", each.doubling_ns}, {"ring_ns", each.ring_ns}});
        return out;
    }

    static int show(const Context& context, const json& report) {
        std::printf("%s", context.json ? (report.dump(2) + "\n").c_str() : render_tuning(report).c_str());
        return exit_ok;
    }

    // What is wrong with the options together; empty: nothing.
    std::string complaint() const {
        if (forget_ && dry_run_)
            return "--forget changes what the daemon keeps: not with --dry-run, which changes nothing";
        if (forget_) return {};
        if (std::string wrong = node_index_complaint(nodes_, node_index_); !wrong.empty()) return wrong;
        if (secret_file_.empty())
            return "--secret-file is needed: ranks of several hosts share a secret (openssl rand -hex 32 > "
                   "FILE)";
        return {};
    }

    // Of an answer without a cost model.
    static Reply other_version(const Context& context) {
        const Reply status = ask(context.socket, "status", "{}");
        const std::string version = text_of(json::parse(status.text, nullptr, false), "version");
        return {exit_failed,
                "tune: the daemon's answer has no cost model. It is nexard " +
                    (version.empty() ? "of an unknown version" : version) +
                    ", this is nexarctl " NEXAR_VERSION_TEXT
                    ": use the nexarctl of the daemon's version, or restart the daemon with this one",
                "PROTOCOL_ERROR"};
    }

    // Why it does not measure now; exit_ok: it does.
    Reply refusal(const Context& context) const {
        const Reply answer = ask(context.socket, "status", "{}");
        if (answer.exit != exit_ok) return answer;
        const json status = json::parse(answer.text, nullptr, false);
        const uint64_t busy = count_of(status, "ops_in_flight");
        if (busy > 0 && !force_)
            return {
                exit_failed,
                "tune: " + std::to_string(busy) + (busy == 1 ? " operation is" : " operations are") +
                    " in flight on this node (nexarctl ops): it would measure what they leave, and disturb "
                    "them. Wait for their end, or --force",
                "BAD_STATE"};
        if (text_of(status, "state") == "no cluster")
            return {exit_failed, "tune: this node is in no cluster: there is no link to measure",
                    "BAD_STATE"};
        Reply session = check_session_socket(session_socket_of(context), session_timeout_ms);
        if (session.exit != exit_ok) session.text = "tune: " + session.text;
        return session;
    }

    // Of the daemon that --socket names, for the rank that measures: its key `socket`, where NEXAR_SOCKET
    // does not say another one.
    static std::string session_socket_of(const Context& context) {
        if (const char* const set = std::getenv("NEXAR_SOCKET"); set != nullptr && *set != 0) return set;
        const Reply answer = ask(context.socket, "config", "{}");
        const json config = json::parse(answer.text, nullptr, false);
        const std::string socket = has(config, "values") ? text_of(config["values"], "socket") : "";
        return socket.empty() ? session_socket() : socket;
    }

    nexar::Result<TuneJob> job_of(const Context& context) const {
        TuneJob job;
        NEXAR_TRY(job.secret, read_secret(secret_file_));
        job.session_socket = session_socket_of(context);
        job.group = "nexar-tune";
        job.nodes = static_cast<uint32_t>(nodes_);
        job.index = static_cast<uint32_t>(node_index_.value_or(0));
        job.seconds = seconds_;
        job.is_dry = dry_run_;
        job.announce = [&context](const Trial& trial) -> nexar::Result<void> {
            const json wish{
                {"trial", {{"group", trial.group}, {"doubling_bytes_max", trial.doubling_bytes_max}}}};
            const Reply reply = ask(context.socket, "tune", wish.dump(), change_timeout_ms);
            if (reply.exit != exit_ok) return nexar::fail(nexar::Errc::io, reply.text);
            return {};
        };
        job.plan_of_group = [&context](const std::string& name) -> nexar::Result<PlanQuestion> {
            const Reply reply = ask(context.socket, "plan", json{{"group", name}}.dump());
            PlanQuestion question;
            if (reply.exit != exit_ok || !read_group(json::parse(reply.text, nullptr, false), question))
                return nexar::fail(nexar::Errc::io, "the daemon does not describe the group: " + reply.text);
            NEXAR_TRY_VOID(question.table.check());
            return question;
        };
        return job;
    }

    uint64_t nodes_ = 2;
    std::optional<uint64_t> node_index_;
    std::string secret_file_;
    double seconds_ = 5;
    bool dry_run_ = false, force_ = false, forget_ = false;
};

}  // namespace

std::unique_ptr<Command> make_tune() {
    return std::make_unique<Tune>();
}

}  // namespace nexarctl
