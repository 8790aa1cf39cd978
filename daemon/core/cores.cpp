#include "core/cores.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

namespace nexar {

namespace {

constexpr const char* mount = "/sys/fs/cgroup";

std::optional<unsigned> whole_cores(const std::string& quota, const std::string& period) {
    std::istringstream in(quota + ' ' + period);
    int64_t q = 0, p = 0;
    if (!(in >> q >> p) || q <= 0 || p <= 0) return std::nullopt;  // "max", "-1"
    return static_cast<unsigned>(std::min<int64_t>(q / p + (q % p != 0), 1 << 20));
}

std::optional<unsigned> quota_v2(const ReadText& read, const std::string& folder) {
    const auto text = read(folder + "/cpu.max");  // "quota period"
    return text ? whole_cores(*text, "") : std::nullopt;
}

std::optional<unsigned> quota_v1(const ReadText& read, const std::string& folder) {
    const auto quota = read(folder + "/cpu.cfs_quota_us"), period = read(folder + "/cpu.cfs_period_us");
    return quota && period ? whole_cores(*quota, *period) : std::nullopt;
}

// From the group up to the root of the mounted hierarchy. A container may see a path that exists on the host
// only: then the container's own group is the root.
template <class Quota>
std::optional<unsigned> smallest(const ReadText& read, const std::string& root, std::string path,
                                 Quota quota) {
    std::optional<unsigned> out;
    for (;;) {
        while (!path.empty() && path.back() == '/') path.pop_back();
        if (const auto cores = quota(read, root + path)) out = std::min(out.value_or(*cores), *cores);
        if (path.empty()) return out;
        path.erase(std::min(path.rfind('/'), path.size()));
    }
}

bool lists(const std::string& controllers, const std::string& wanted) {
    std::istringstream in(controllers);
    for (std::string one; std::getline(in, one, ',');)
        if (one == wanted) return true;
    return false;
}

std::optional<std::string> read_file(const std::string& path) {
    std::ifstream in(path);
    if (!in) return std::nullopt;
    return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

std::optional<unsigned> quota_cores(const ReadText& read) {
    const auto groups = read("/proc/self/cgroup");
    if (!groups) return std::nullopt;
    std::optional<unsigned> out;
    std::istringstream lines(*groups);  // "hierarchy:controllers:path"; v2 has no controllers
    for (std::string line; std::getline(lines, line);) {
        const size_t first = line.find(':'), second = line.find(':', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1),
                          path = line.substr(second + 1);
        std::optional<unsigned> cores;
        if (controllers.empty())
            cores = smallest(read, mount, path, quota_v2);
        else if (lists(controllers, "cpu"))
            cores = smallest(read, std::string(mount) + "/cpu", path, quota_v1);
        if (cores) out = std::min(out.value_or(*cores), *cores);
    }
    return out;
}

unsigned usable_cores() {
    static const unsigned cores = [] {
        cpu_set_t set;
        CPU_ZERO(&set);
        // sched_getaffinity fails where the machine has more CPUs than cpu_set_t: then all CPUs count.
        const auto allowed = ::sched_getaffinity(0, sizeof set, &set) == 0
                                 ? static_cast<unsigned>(std::max(1, CPU_COUNT(&set)))
                                 : static_cast<unsigned>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
        return std::min(allowed, quota_cores(read_file).value_or(allowed));
    }();
    return cores;
}

}  // namespace nexar
