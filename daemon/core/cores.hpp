// How many threads this process can run at once: the affinity mask, and the CPU quotas of its control groups.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace nexar {

// Reads a file's text; nothing: it cannot be read. Tests pass their own.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

// Cores that the quotas allow, rounded up and at least 1; nothing: there is no quota. The smallest quota from
// this process's group up to the root counts (cgroup v2: cpu.max; v1: cpu.cfs_quota_us by cpu.cfs_period_us).
std::optional<unsigned> quota_cores(const ReadText& read);

// At least 1. Computed at the first call.
unsigned usable_cores();

}  // namespace nexar
