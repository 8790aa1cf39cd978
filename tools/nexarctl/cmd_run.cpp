// nexarctl run: the local ranks of a job, with everything nexar_group_open(session, NULL, ...) looks for.
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "config/config.hpp"
#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/daemon_check.hpp"
#include "nexarctl/descriptor.hpp"
#include "nexarctl/launcher.hpp"
#include "nexarctl/node_index.hpp"
#include "nexarctl/options.hpp"
#include "nexarctl/rank_process.hpp"
#include "nexarctl/secret_file.hpp"

namespace nexarctl {

namespace {

// ADDRESS:PORT, [ADDRESS]:PORT for IPv6.
bool read_master(const std::string& text, Job& job) {
    const size_t colon = text.rfind(':');
    if (colon == std::string::npos) return false;
    std::string address = text.substr(0, colon);
    if (address.starts_with('[') && address.ends_with(']'))
        address = address.substr(1, address.size() - 2);
    else if (address.find(':') != std::string::npos)
        return false;
    const char *port = text.data() + colon + 1, *end = text.data() + text.size();
    const auto read = std::from_chars(port, end, job.master_port);
    job.master_address = address;
    return !address.empty() && read.ec == std::errc() && read.ptr == end && job.master_port != 0;
}

// A port of this host that nobody uses now. 0: none is free.
uint16_t free_port() {
    const Descriptor probe(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (::bind(probe.fd, any, size) != 0 || ::getsockname(probe.fd, any, &size) != 0) return 0;
    return ntohs(address.sin_port);
}

// Of nexar's variables one that nexar lacks does nothing: a misspelt time-out, say.
void warn_of_unknown(const Job& job) {
    std::map<std::string, std::string> given;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        given.emplace(text.substr(0, text.find('=')), "");
    }
    for (const std::string& entry : job.environment) given.emplace(entry.substr(0, entry.find('=')), "");
    for (const std::string& name : nexar::config::unknown_variables(given))
        std::fprintf(
            stderr,
            "nexarctl: %s is not a variable of nexar, and is ignored; see include/nexar/groups.h and "
            "nexard --help\n",
            name.c_str());
}

class Run final : public Command {
    bool takes_rest() const override { return true; }
    void declare(Options& options) override {
        options.count("-n,--ranks", ranks_, 1, ranks_here_max,
                      "ranks to start on this host; the group has --nodes times as many", /*required=*/true);
        options.count("--nodes", nodes_, 1, world_max,
                      "hosts on which this command is started, each with -n ranks");
        options.count("--node-index", node_index_, 0, world_max - 1,
                      "index of this host, from 0; needed with several");
        options.text("--secret-file", secret_file_,
                     "the job's secret, the same on all hosts; none: a random one");
        options.text("--group", job_.group, "name of the group (NEXAR_GROUP)");
        options.text("--master", master_,
                     "ADDRESS:PORT for MASTER_ADDR and MASTER_PORT, which torch programs on several hosts "
                     "need: an address of host 0. On one host: a free port of 127.0.0.1");
        options.texts("--env", job_.environment, "NAME=VALUE for all ranks; may be repeated");
        options.text("--output-dir", job_.output_dir,
                     "write rank-N.stdout and rank-N.stderr there, in place of the terminal; those of "
                     "a job before are replaced or removed");
        options.flag("--keep-going", job_.keep_going,
                     "a rank that fails does not end the others, which may recover from it");
        options.number("--timeout", job_.timeout_s, 0, 1e7, "seconds until the job is ended; 0: none");
        options.number("--grace", job_.grace_s, 0, 3600, "seconds from SIGTERM to SIGKILL");
        options.flag("--no-prefix", no_prefix_, "do not put [rank] in front of output lines");
    }
    int run(const Context& context) override {
        const std::string wrong = complaint(context);
        if (!wrong.empty()) return show_error(context, {exit_usage, "run: " + wrong, "INVALID_ARGUMENT"});
        Reply daemon = check_session_socket(session_socket(), session_timeout_ms);
        daemon.text = "run: " + daemon.text;
        if (daemon.exit == exit_no_daemon)
            daemon.text += ". For a first try without one: nexarctl dev, in place of nexarctl run";
        if (daemon.exit != exit_ok) return show_error(context, daemon);
        if (nodes_ > 1 && is_in_no_cluster())
            return show_error(
                context,
                {exit_failed,
                 "run: this node is in no cluster, so the ranks of other nodes cannot come; nothing was "
                 "started. Run nexarctl cluster init on one node, nexarctl cluster join - on the others",
                 "BAD_STATE"});
        if (const auto ready = prepare_output(job_); !ready)
            return show_error(context, {exit_failed, "run: " + ready.error().text, "IO"});
        warn_of_unknown(job_);
        const auto code = run_job(job_, write_all);
        if (code) {
            if (context.json) std::printf("{\"exit\":%d}\n", *code);
            return *code;
        }
        return show_error(context, {code.error().code == nexar::Errc::not_found ? 127 : 126,
                                    "run: " + code.error().text, std::string(name_of(code.error().code))});
    }
    // Of the daemon that has the session socket; false if it does not answer that.
    static bool is_in_no_cluster() {
        const std::string socket = session_socket();
        const Reply status =
            ask(socket.substr(0, socket.rfind('/') + 1) + "status.sock", "status", "{}", session_timeout_ms);
        return status.exit == exit_ok &&
               text_of(nlohmann::ordered_json::parse(status.text, nullptr, false), "state") == "no cluster";
    }
    // Fills the job. What is wrong with the options together; empty: nothing.
    std::string complaint(const Context& context) {
        if (context.rest.empty()) return "no command; write it after '--': nexarctl run -n 4 -- ./program";
        if (nodes_ * ranks_ > world_max) return "a group has at most " + std::to_string(world_max) + " ranks";
        if (std::string wrong = node_index_complaint(nodes_, node_index_); !wrong.empty()) return wrong;
        const uint64_t index = node_index_.value_or(0);
        job_.ranks = static_cast<uint32_t>(ranks_);
        job_.first_rank = static_cast<uint32_t>(index * ranks_);
        job_.world = static_cast<uint32_t>(nodes_ * ranks_);
        job_.prefix = !no_prefix_;
        job_.command = context.rest;
        job_.json = context.json;
        if (!master_.empty() && !read_master(master_, job_))
            return "--master '" + master_ + "' is not ADDRESS:PORT, with a port from 1 to 65535";
        if (master_.empty() && nodes_ == 1) {
            job_.master_port = free_port();
            if (job_.master_port != 0) job_.master_address = "127.0.0.1";
        }
        if (std::string wrong = environment_complaint(job_,
                                                      "run sets this variable itself (-n, --nodes, "
                                                      "--node-index, --group, --secret-file, --master)");
            !wrong.empty())
            return wrong;
        return read_secret_file();
    }
    std::string read_secret_file() {
        if (secret_file_.empty()) {
            job_.secret = random_secret();
            return nodes_ > 1 ? "several hosts need one --secret-file with the same content on all" : "";
        }
        const auto secret = read_secret(secret_file_);
        if (!secret) return secret.error().text;
        job_.secret = *secret;
        return "";
    }

    Job job_;
    uint64_t ranks_ = 1, nodes_ = 1;
    std::optional<uint64_t> node_index_;
    std::string secret_file_, master_;
    bool no_prefix_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run() {
    return std::make_unique<Run>();
}

}  // namespace nexarctl
