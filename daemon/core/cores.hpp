// How many threads can run here at once: the affinity mask, and the CPU quota of the control groups around
// us.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace nexar {

// A file's text, or nothing; tests give their own.
using ReadText = std::function<std::optional<std::string>(const std::string& path)>;

// Cores that the quotas allow, rounded up and at least 1; nothing: there is no quota. The smallest of all
// groups from ours up to the root counts (cgroup v2: cpu.max; v1: cpu.cfs_quota_us by cpu.cfs_period_us).
std::optional<unsigned> quota_cores(const ReadText& read);

// At least 1. Found out once.
unsigned usable_cores();

}  // namespace nexar
