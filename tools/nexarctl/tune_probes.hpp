// What `nexarctl tune` times, as one rank of groups with a rank on each host.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/tuning.hpp"
#include "core/result.hpp"
#include "nexarctl/plan_report.hpp"
#include "nexarctl/tune_fit.hpp"

namespace nexarctl {

// A group that is to go by size with this limit of recursive doubling [O8].
struct Trial {
    std::string group;
    uint64_t doubling_bytes_max = 0;
};

struct TuneJob {
    std::string session_socket;
    std::string group, secret;
    uint32_t nodes = 2, index = 0;
    double seconds = 5;   // about, for all probes
    bool is_dry = false;  // on one host: on all
    // A group's table and layout, from this host's daemon.
    std::function<nexar::Result<PlanQuestion>(const std::string& group)> plan_of_group;
    std::function<nexar::Result<void>(const Trial& trial)> announce;  // to this host's daemon
};

struct Measured {
    Times times;                               // this host's; the others' may differ
    std::vector<Raced> raced;                  // of the slowest host each
    std::string why_no_race;                   // empty: there was one
    nexar::collectives::Tuning found;          // of the slowest: the same on all hosts
    bool is_dry = false;                       // on any host
    uint64_t small_bytes = 0, bulk_bytes = 0;  // of the long operations
};
nexar::Result<Measured> measure(const TuneJob& job);

}  // namespace nexarctl
