// Facts about this machine: kernel, limits, processor, clocks. Nothing here changes anything.
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <thread>

#include "nexarctl/client.hpp"
#include "nexarctl/doctor.hpp"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace nexarctl {

namespace {

std::optional<uint64_t> number(const std::string& text) {
    if (text == "unlimited") return UINT64_MAX;
    uint64_t value = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
    return read.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

std::optional<bool> try_futex_waitv() {
    // No waiters is EINVAL where the call exists.
    if (::syscall(SYS_futex_waitv, nullptr, 0, 0, nullptr, 0) == 0) return true;
    return errno != ENOSYS && errno != EPERM;
}

std::optional<bool> try_seals() {
    const int fd = ::memfd_create("nexar-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) return false;
    const bool sealed = ::ftruncate(fd, 4096) == 0 &&
                        ::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 &&
                        ::ftruncate(fd, 0) != 0 && errno == EPERM;
    ::close(fd);
    return sealed;
}

std::optional<bool> try_pidfd() {
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
    if (fd >= 0) ::close(fd);
    return fd >= 0;
}

// /proc/PID/limits: "Max locked memory         8388608    8388608    bytes".
std::optional<uint64_t> limit_in(const std::string& text, const std::string& name) {
    const size_t at = text.find(name);
    if (at == std::string::npos) return std::nullopt;
    std::istringstream words(text.substr(at + name.size()));
    std::string soft;
    words >> soft;
    return number(soft);
}

uint64_t own_limit(int which) {
    rlimit limit{};
    ::getrlimit(static_cast<__rlimit_resource>(which), &limit);
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

void gather_limits(Facts& f, uint32_t pid) {
    if (pid != 0) {
        std::ifstream file("/proc/" + std::to_string(pid) + "/limits");
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        f.memlock_bytes = limit_in(text, "Max locked memory");
        f.nofile = limit_in(text, "Max open files");
        f.limits_of = "nexard (pid " + std::to_string(pid) + ")";
        if (f.memlock_bytes && f.nofile) return;
    }
    f.memlock_bytes = own_limit(RLIMIT_MEMLOCK);
    f.nofile = own_limit(RLIMIT_NOFILE);
    f.limits_of = "this shell";
}

void gather_cpu(Facts& f) {
    f.cores = std::thread::hardware_concurrency();
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        const std::string words = " " + line.substr(line.find(':') + 1) + " ";
        const auto has_word = [&](const char* word) {
            return words.find(" " + std::string(word) + " ") != std::string::npos;
        };
        f.aes = has_word("aes");
        f.vaes = has_word("vaes");
        f.avx2 = has_word("avx2");
        f.avx512f = has_word("avx512f");
        return;
    }
}

// The tightest cpu.max from our cgroup up to the root (cgroup v2).
std::optional<double> cpu_quota() {
    std::string path = first_line("/proc/self/cgroup");
    if (!path.starts_with("0::")) return std::nullopt;
    path.erase(0, 3);
    std::optional<double> least;
    for (;;) {
        std::istringstream words(first_line("/sys/fs/cgroup" + path + "/cpu.max"));
        std::string quota;
        double period = 0;
        if (words >> quota >> period; quota != "max" && !quota.empty() && period > 0) {
            const double cores = static_cast<double>(number(quota).value_or(0)) / period;
            if (!least || cores < *least) least = cores;
        }
        if (path.empty() || path == "/") return least;
        path.erase(path.rfind('/'));
    }
}

void gather_clock(Facts& f) {
    timex state{};
    const int got = ::adjtimex(&state);
    if (got >= 0) f.clock_synchronised = got != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
    f.clock_source = first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource");
}

void gather_path(PathFact& p) {
    struct stat status{};
    if (::stat(p.path.c_str(), &status) != 0) return;
    p.exists = true;
    p.is_socket = S_ISSOCK(status.st_mode);
    p.mode = status.st_mode;
    const passwd* const user = ::getpwuid(status.st_uid);
    p.owner = user != nullptr ? user->pw_name : std::to_string(status.st_uid);
    const group* const members = ::getgrgid(status.st_gid);
    p.group = members != nullptr ? members->gr_name : std::to_string(status.st_gid);
    p.usable = ::access(p.path.c_str(), R_OK | W_OK) == 0;
}

}  // namespace

void gather_machine(Facts& f, uint32_t limits_pid) {
    utsname names{};
    if (::uname(&names) == 0) f.kernel = names.release;
    f.futex_waitv = try_futex_waitv();
    f.memfd_seals = try_seals();
    f.pidfd = try_pidfd();
    gather_limits(f, limits_pid);
    f.rmem_max = number(first_line("/proc/sys/net/core/rmem_max"));
    f.wmem_max = number(first_line("/proc/sys/net/core/wmem_max"));
    gather_cpu(f);
    f.cpu_quota = cpu_quota();
    gather_clock(f);
    gather_path(f.admin_socket);
    gather_path(f.session_socket);
}

void read_daemon(Facts& f, const nlohmann::ordered_json& doctor) {
    f.daemon = true;
    f.listen = text_of(doctor, "listen");
    f.state = text_of(doctor, "state");
    f.why_no_cluster = text_of(doctor, "why_no_cluster");
    if (doctor.contains("holes_unguarded")) f.holes_unguarded = text_of(doctor, "holes_unguarded");
    f.state_dir = text_of(doctor, "state_dir");
    if (has(doctor, "certificate")) {
        const auto& c = doctor["certificate"];
        f.certificate = {text_of(c, "state"), text_of(c, "why"), number_of(c, "expires_in_s"),
                         number_of(c, "renewal_due_in_s"), count_of(c, "renewal_failures")};
    }
    for (const auto& a : list_of(doctor, "addresses"))
        f.addresses.push_back({text_of(a, "address"), text_of(a, "why"), flag_of(a, "chosen")});
    for (const auto& p : list_of(doctor, "peers")) {
        Facts::Peer peer{
            node_text(p), text_of(p, "state"), text_of(p, "address"), text_of(p, "why"), {}, {}, {}};
        if (has(p, "rtt_ms")) peer.rtt_ms = number_of(p, "rtt_ms");
        if (has(p, "received_ago_ms")) peer.received_ago_ms = number_of(p, "received_ago_ms");
        for (const auto& b : list_of(p, "bulk"))
            peer.bulk.push_back({text_of(b, "address"),
                                 flag_of(b, "up"),
                                 flag_of(b, "answers"),
                                 text_of(b, "carrier"),
                                 text_of(b, "carrier_why"),
                                 flag_of(b, "tcp"),
                                 {}});
        f.peers.push_back(std::move(peer));
    }
    if (!text_of(doctor, "socket").empty()) f.session_socket.path = text_of(doctor, "socket");
}

}  // namespace nexarctl
