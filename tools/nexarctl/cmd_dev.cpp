// nexarctl dev: a job on daemons of its own, which end with it; without a command the daemons alone.
#include <poll.h>
#include <signal.h>

#include <cstdio>
#include <iterator>
#include <memory>
#include <string>

#include "nexarctl/client.hpp"
#include "nexarctl/commands.hpp"
#include "nexarctl/launcher.hpp"
#include "nexarctl/options.hpp"
#include "nexarctl/private_cluster.hpp"
#include "nexarctl/rank_process.hpp"

namespace nexarctl {

namespace {

constexpr uint64_t dev_nodes_max = 200;

volatile sig_atomic_t stopped_by = 0;  // a signal

// Signals end the wait, not this process: the daemons and their folder are removed. run_job() takes them over
// while ranks run, and ranks do not inherit this.
class Stopping {
  public:
    Stopping() {
        struct sigaction action{};
        action.sa_handler = [](int signal) { stopped_by = signal; };
        action.sa_flags = SA_RESTART;
        for (size_t i = 0; i < std::size(signals_); ++i) ::sigaction(signals_[i], &action, &before_[i]);
    }
    ~Stopping() {
        for (size_t i = 0; i < std::size(signals_); ++i) ::sigaction(signals_[i], &before_[i], nullptr);
    }
    Stopping(const Stopping&) = delete;
    Stopping& operator=(const Stopping&) = delete;

  private:
    static constexpr int signals_[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction before_[std::size(signals_)] = {};
};

class Dev final : public Command {
    bool takes_rest() const override { return true; }
    void declare(Options& options) override {
        options.count("-n,--ranks", ranks_, 1, ranks_here_max,
                      "ranks to start in all, in blocks on the nodes");
        options.count("--nodes", nodes_, 1, dev_nodes_max, "daemons, each as if it were a host's");
        options.text("--nexard", nexard_, "the program; default: $NEXAR_NEXARD, or where it is installed");
        options.texts("--env", job_.environment, "NAME=VALUE for all ranks; may be repeated");
        options.flag("--keep-going", job_.keep_going, "a rank that fails does not end the others");
        options.number("--timeout", job_.timeout_s, 0, 1e7, "seconds until the job is ended; 0: none");
        options.flag("--no-prefix", no_prefix_, "do not put [rank] in front of output lines");
    }
    int run(const Context& context) override {
        const auto refuse = [&](const nexar::Error& why, int code) {
            return show_error(context, {code, "dev: " + why.text, std::string(name_of(why.code))});
        };
        if (const auto fits = check(context); !fits) return refuse(fits.error(), exit_usage);
        const auto nexard = find_nexard(nexard_);
        if (!nexard)
            return refuse(nexard.error(),
                          nexard.error().code == nexar::Errc::not_found ? exit_failed : exit_usage);
        const Stopping stopping;
        const auto cluster =
            PrivateCluster::start(static_cast<uint32_t>(nodes_), *nexard, [] { return stopped_by != 0; });
        if (stopped_by != 0) return 128 + stopped_by;
        if (!cluster) return refuse(cluster.error(), exit_failed);
        if (context.rest.empty()) return stay(context, *cluster);
        const auto code = run_ranks(context, *cluster);
        if (!code) return refuse(code.error(), code.error().code == nexar::Errc::not_found ? 127 : 126);
        if (context.json) std::printf("{\"exit\":%d}\n", *code);
        return *code;
    }

    nexar::Result<void> check(const Context& context) const {
        if (!context.rest.empty() && ranks_ < nodes_)
            return nexar::fail(nexar::Errc::invalid_argument,
                               "-n " + std::to_string(ranks_) + " is less than --nodes " +
                                   std::to_string(nodes_) + ": each node has a rank");
        if (context.rest.empty() && ranks_ > 1)
            return nexar::fail(nexar::Errc::invalid_argument,
                               "-n " + std::to_string(ranks_) +
                                   " without a command: put -- and the command after it, or leave it out");
        Job job = job_;
        job.sockets = {""};  // it sets this one, too
        if (std::string wrong = environment_complaint(
                job, "dev sets this variable itself, from -n, --nodes and its own daemons");
            !wrong.empty())
            return nexar::fail(nexar::Errc::invalid_argument, std::move(wrong));
        return {};
    }

    nexar::Result<int> run_ranks(const Context& context, const PrivateCluster& cluster) {
        job_.ranks = job_.world = static_cast<uint32_t>(ranks_);
        job_.secret = random_secret();
        job_.prefix = !no_prefix_;
        job_.json = context.json;
        job_.command = context.rest;
        for (uint32_t node = 0; node < nodes_; ++node) job_.sockets.push_back(cluster.session_socket(node));
        return run_job(job_, write_all);
    }

    // Until a signal comes.
    int stay(const Context& context, const PrivateCluster& cluster) const {
        for (uint32_t node = 0; node < nodes_; ++node)
            std::printf(context.json ? "{\"NEXAR_SOCKET\":\"%s\",\"NEXAR_ADMIN_SOCKET\":\"%s\"}\n"
                                     : "NEXAR_SOCKET=%s NEXAR_ADMIN_SOCKET=%s\n",
                        cluster.session_socket(node).c_str(), cluster.admin_socket(node).c_str());
        if (!context.json)
            std::printf(nodes_ == 1 ? "%llu daemon runs until Ctrl-C\n" : "%llu daemons run until Ctrl-C\n",
                        static_cast<unsigned long long>(nodes_));
        std::fflush(stdout);
        while (stopped_by == 0) ::poll(nullptr, 0, wait_ms);
        return exit_ok;
    }

    static constexpr int wait_ms = 200;
    Job job_;
    uint64_t ranks_ = 1, nodes_ = 1;
    std::string nexard_;
    bool no_prefix_ = false;
};

}  // namespace

std::unique_ptr<Command> make_dev() {
    return std::make_unique<Dev>();
}

}  // namespace nexarctl
