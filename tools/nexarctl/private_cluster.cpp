// See private_cluster.hpp.
#include "nexarctl/private_cluster.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nexarctl/client.hpp"
#include "nexarctl/rank_process.hpp"

namespace nexarctl {

using nexar::Errc;
using nexar::fail;
using nexar::Result;

namespace {

constexpr std::chrono::seconds start_time{30}, end_time{5};
constexpr int look_ms = 20;
constexpr int networks_tried_max = 5;                // somebody else may use one
constexpr int port_min = 10'000, port_max = 30'000;  // below those that the kernel gives to connections
constexpr size_t log_bytes_shown = 2000;

// A network of the loopback device, and a port: a daemon of the host may have 7654 on all addresses.
struct Network {
    Network() {
        std::random_device random;
        std::uniform_int_distribution<int> middle(1, 254), low(0, 255), ports(port_min, port_max);
        prefix_ = "127." + std::to_string(middle(random)) + "." + std::to_string(low(random)) + ".";
        port_ = ports(random);
    }
    std::string address(size_t node) const {
        return prefix_ + std::to_string(node + 1) + ":" + std::to_string(port_);
    }

  private:
    std::string prefix_;
    int port_ = 0;
};

bool has_ended(pid_t daemon) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(daemon), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
           info.si_pid != 0;
}

// The daemon's variables are its own, not those of who calls nexarctl.
std::vector<std::string> environment_with(const std::string& setting) {
    std::vector<std::string> out{setting};
    for (char** entry = environ; *entry != nullptr; ++entry)
        if (!std::string_view(*entry).starts_with("NEXAR_")) out.emplace_back(*entry);
    return out;
}

// In the child. Its process group is its own: Ctrl-C is for nexarctl, which ends the daemons last.
[[noreturn]] void become(const std::vector<char*>& arguments, const std::vector<char*>& variables, int log,
                         pid_t parent) {
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int none = ::open("/dev/null", O_RDONLY);
    const bool ready =
        ::dup2(none, STDIN_FILENO) >= 0 && ::dup2(log, STDOUT_FILENO) >= 0 && ::dup2(log, STDERR_FILENO) >= 0;
    if (ready && ::getppid() == parent) ::execve(arguments[0], arguments.data(), variables.data());
    ::_exit(127);
}

}  // namespace

Result<PrivateCluster> PrivateCluster::start(uint32_t nodes, const std::string& nexard,
                                             const Withdrawn& withdrawn) {
    std::error_code error;
    std::string folder = (std::filesystem::temp_directory_path(error) / "nexar-dev.XXXXXX").native();
    if (error || ::mkdtemp(folder.data()) == nullptr)
        return fail(Errc::io, "cannot make a temporary folder: " + std::string(std::strerror(errno)));
    PrivateCluster cluster(folder);
    NEXAR_TRY_VOID(cluster.form(nodes, nexard, withdrawn));
    return cluster;
}

PrivateCluster::PrivateCluster(PrivateCluster&& other) noexcept
    : folder_(std::exchange(other.folder_, {})), daemons_(std::exchange(other.daemons_, {})) {}

PrivateCluster::~PrivateCluster() {
    stop();
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, error);
}

std::string PrivateCluster::file(size_t node, const char* name) const {
    return folder_ + "/node" + std::to_string(node) + "/" + name;
}

std::string PrivateCluster::end_of_log(size_t node) const {
    std::ifstream stream(file(node, "log"), std::ios::binary);
    std::string log{std::istreambuf_iterator<char>(stream), {}};
    return log.substr(log.size() - std::min(log.size(), log_bytes_shown));
}

// The first node makes the cluster, the others join it with a token. When the first one ends at once,
// somebody else may have its address.
Result<void> PrivateCluster::form(uint32_t nodes, const std::string& nexard, const Withdrawn& withdrawn) {
    const auto answers_in_time = [&](size_t node) {
        return until(withdrawn, "node " + std::to_string(node) + " did not answer",
                     [&] { return answers(node); });
    };
    Network network;
    for (int tried = 1; daemons_.empty(); ++tried) {
        network = Network();
        NEXAR_TRY_VOID(start_node(nexard, network.address(0), "NEXAR_INIT_CLUSTER=1"));
        const auto answered = answers_in_time(0);
        if (answered) break;
        if (tried == networks_tried_max || !has_ended(daemons_[0])) return answered;
        stop();
    }
    if (nodes == 1) return {};
    NEXAR_TRY(const std::string token, make_token(nodes - 1));
    for (uint32_t node = 1; node < nodes; ++node)
        NEXAR_TRY_VOID(start_node(nexard, network.address(node), "NEXAR_CLUSTER_TOKEN=" + token));
    for (uint32_t node = 1; node < nodes; ++node) NEXAR_TRY_VOID(answers_in_time(node));
    return until(withdrawn, "the nodes did not connect", [&] { return all_connected(); });
}

Result<void> PrivateCluster::start_node(const std::string& nexard, const std::string& address,
                                        const std::string& setting) {
    const size_t node = daemons_.size();
    const auto io_error = [](const std::string& what) {
        return fail(Errc::io, what + ": " + std::strerror(errno));
    };
    std::error_code error;
    std::filesystem::create_directory(folder_ + "/node" + std::to_string(node), error);
    const int log = ::open(file(node, "log").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (log < 0) return io_error("cannot write " + file(node, "log"));
    std::vector<std::string> command{
        nexard,           "--config",          "/dev/null",   "--socket",          file(node, "socket"),
        "--admin-socket", file(node, "admin"), "--state-dir", file(node, "state"), "--listen",
        address};
    std::vector<std::string> environment = environment_with(setting);
    const auto arguments = pointers(command);
    const auto variables = pointers(environment);
    const pid_t parent = ::getpid();
    const pid_t daemon = ::fork();
    if (daemon == 0) become(arguments, variables, log, parent);
    ::close(log);
    if (daemon < 0) return io_error("cannot start " + nexard);
    daemons_.push_back(daemon);
    return {};
}

Result<std::string> PrivateCluster::make_token(uint32_t uses) const {
    const nlohmann::json arguments{{"uses", uses}, {"lifetime_s", 600}};
    const Reply reply = ask(admin_socket(0), "token_create", arguments.dump(), change_timeout_ms);
    if (reply.exit != exit_ok) return fail(Errc::io, "node 0 made no token: " + reply.text);
    return text_of(nlohmann::ordered_json::parse(reply.text, nullptr, false), "token");
}

Result<void> PrivateCluster::until(const Withdrawn& withdrawn, const std::string& otherwise,
                                   const std::function<Result<Look>()>& look) const {
    for (const auto end = std::chrono::steady_clock::now() + start_time;
         std::chrono::steady_clock::now() < end;) {
        if (withdrawn()) return fail(Errc::cancelled, "ended before the daemons were ready");
        NEXAR_TRY(const Look seen, look());
        if (seen == Look::yes) return {};
        ::poll(nullptr, 0, look_ms);
    }
    return fail(Errc::timed_out, otherwise + " within " + std::to_string(start_time.count()) + " s");
}

Result<PrivateCluster::Look> PrivateCluster::answers(size_t node) const {
    if (has_ended(daemons_[node]))
        return fail(Errc::io, "the daemon of node " + std::to_string(node) +
                                  " ended at its start; its log:\n" + end_of_log(node));
    const bool answered = ask(admin_socket(static_cast<uint32_t>(node)), "config", "{}").exit == exit_ok;
    return answered ? Look::yes : Look::no;
}

Result<PrivateCluster::Look> PrivateCluster::all_connected() const {
    for (size_t node = 0; node < daemons_.size(); ++node) {
        NEXAR_TRY(const Look answered, answers(node));
        const Reply reply = ask(admin_socket(static_cast<uint32_t>(node)), "status", "{}");
        if (answered == Look::no || reply.exit != exit_ok) return Look::no;
        const auto status = nlohmann::ordered_json::parse(reply.text, nullptr, false);
        const auto up = std::ranges::count_if(
            list_of(status, "peers"), [](const auto& peer) { return text_of(peer, "state") == "up"; });
        if (static_cast<size_t>(up) + 1 < daemons_.size()) return Look::no;
    }
    return Look::yes;
}

void PrivateCluster::stop() {
    for (const pid_t daemon : daemons_) ::kill(daemon, SIGTERM);
    const auto end = std::chrono::steady_clock::now() + end_time;
    for (const pid_t daemon : daemons_) {
        while (!has_ended(daemon) && std::chrono::steady_clock::now() < end) ::poll(nullptr, 0, look_ms);
        ::kill(daemon, SIGKILL);
        while (::waitpid(daemon, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    daemons_.clear();
}

namespace {

nexar::Result<std::string> program_at(const std::string& path, const std::string& named_by) {
    struct stat found{};
    int why = ::stat(path.c_str(), &found) != 0 ? errno : 0;
    if (why == 0 && S_ISDIR(found.st_mode)) why = EISDIR;
    if (why == 0 && ::access(path.c_str(), X_OK) != 0) why = errno;
    if (why == 0) return path;
    return nexar::fail(nexar::Errc::invalid_argument, named_by + path + ": " + std::strerror(why) +
                                                          "; allowed: the path of the program nexard");
}

}  // namespace

nexar::Result<std::string> find_nexard(const std::string& given) {
    if (!given.empty()) return program_at(given, "--nexard ");
    if (const char* const set = std::getenv("NEXAR_NEXARD"); set != nullptr && *set != 0)
        return program_at(set, "NEXAR_NEXARD=");
    std::error_code error;
    const auto own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path().native();
    std::vector<std::string> places{own, own + "/../sbin",
                                    own + "/../../daemon"};  // the last: a build folder
    if (const char* const path = std::getenv("PATH"))
        for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
            end = std::string_view(path).find(':', begin);
            places.emplace_back(std::string_view(path).substr(begin, end - begin));
        }
    for (const char* usual : {"/usr/sbin", "/usr/local/sbin"}) places.emplace_back(usual);
    for (const std::string& place : places)
        if (::access((place + "/nexard").c_str(), X_OK) == 0) return place + "/nexard";
    return nexar::fail(nexar::Errc::not_found,
                       "nexard is not installed: give its path with --nexard, or set NEXAR_NEXARD");
}

}  // namespace nexarctl
