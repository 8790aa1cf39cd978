// nexarctl run: the local ranks of a job, with everything nexar_group_open(session, NULL, ...) looks for.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>

#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/launcher.hpp"
#include "nexarctl/options.hpp"

namespace nexarctl {

namespace {

constexpr size_t secret_bytes_min = 16, secret_bytes_max = 128;  // NEXAR_NAME_MAX

nexar::Result<std::string> read_secret(const std::string& path) {
    const auto bad = [&](const std::string& why) {
        return nexar::fail(nexar::Errc::invalid_argument, path + ": " + why);
    };
    std::ifstream file(path, std::ios::binary);
    if (!file) return bad("the secret cannot be read; check the path and its permissions");
    struct stat status{};
    if (::stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0)
        std::fprintf(stderr, "nexarctl: others can read %s; chmod 600 it\n", path.c_str());
    std::string secret(secret_bytes_max + 2, '\0');
    file.read(secret.data(), static_cast<std::streamsize>(secret.size()));
    secret.resize(static_cast<size_t>(file.gcount()));
    while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
    if (secret.size() < secret_bytes_min || secret.size() > secret_bytes_max ||
        secret.find_first_of(std::string_view("\0\n", 2)) != std::string::npos)
        return bad("a secret is one line of " + std::to_string(secret_bytes_min) + " to " +
                   std::to_string(secret_bytes_max) + " bytes (openssl rand -hex 32 > FILE)");
    return secret;
}

class Run final : public Command {
    bool takes_rest() const override { return true; }
    void declare(Options& options) override {
        options.count("-n,--ranks", ranks_, 1, ranks_here_max, "ranks to start here", /*required=*/true);
        options.count("--nodes", nodes_, 1, world_max,
                      "hosts on which this command is started, each with -n ranks");
        options.count("--node-index", node_index_, 0, world_max - 1, "index of this host, from 0");
        options.text("--secret-file", secret_file_,
                     "the job's secret, the same on all hosts; none: a random one");
        options.text("--group", job_.group, "name of the group (NEXAR_GROUP)");
        options.number("--timeout", job_.timeout_s, 0, 1e7, "seconds until the job is ended; 0: none");
        options.number("--grace", job_.grace_s, 0, 3600, "seconds from SIGTERM to SIGKILL");
        options.flag("--no-prefix", no_prefix_, "do not put [rank] in front of output lines");
    }
    int run(const Context& context) override {
        const std::string wrong = complaint(context);
        if (!wrong.empty()) return show_error(context, {exit_usage, "run: " + wrong, "INVALID_ARGUMENT"});
        job_.ranks = static_cast<uint32_t>(ranks_);
        job_.first_rank = static_cast<uint32_t>(node_index_ * ranks_);
        job_.world = static_cast<uint32_t>(nodes_ * ranks_);
        job_.prefix = !no_prefix_;
        job_.command = context.rest;
        if (secret_file_.empty()) job_.secret = random_secret();
        job_.json = context.json;
        const auto code = run_job(job_, write_all);
        if (code) {
            if (context.json) std::printf("{\"exit\":%d}\n", *code);
            return *code;
        }
        return show_error(context, {code.error().code == nexar::Errc::not_found ? 127 : 126,
                                    "run: " + code.error().text, std::string(name_of(code.error().code))});
    }
    // What is wrong with the options together; empty: nothing. Reads the secret.
    std::string complaint(const Context& context) {
        if (context.rest.empty()) return "no command; write it after '--': nexarctl run -n 4 -- ./program";
        if (nodes_ * ranks_ > world_max) return "a group has at most " + std::to_string(world_max) + " ranks";
        if (node_index_ >= nodes_)
            return "--node-index " + std::to_string(node_index_) + " is not below --nodes " +
                   std::to_string(nodes_);
        if (secret_file_.empty())
            return nodes_ > 1 ? "several hosts need one --secret-file with the same content on all" : "";
        const auto secret = read_secret(secret_file_);
        if (!secret) return secret.error().text;
        job_.secret = *secret;
        return "";
    }

    Job job_;
    uint64_t ranks_ = 1, nodes_ = 1, node_index_ = 0;
    std::string secret_file_;
    bool no_prefix_ = false;
};

}  // namespace

std::unique_ptr<Command> make_run() {
    return std::make_unique<Run>();
}

}  // namespace nexarctl
