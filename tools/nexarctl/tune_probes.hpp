// What `nexarctl tune` times, as one rank of a group with a rank on each host: operations through the real
// daemons. libnexar_c is loaded when it is needed: no other command needs it.
#pragma once

#include <functional>
#include <string>

#include "core/result.hpp"
#include "nexarctl/plan_report.hpp"
#include "nexarctl/tune_fit.hpp"

namespace nexarctl {

struct TuneJob {
    std::string session_socket;
    std::string group, secret;
    uint32_t nodes = 2, index = 0;
    double seconds = 5;  // about, for all probes
    // The group's table and layout, from this host's daemon.
    std::function<nexar::Result<PlanQuestion>()> plan_of_group;
};

struct Tuning {
    Times times;                               // this host's; the others' may differ
    nexar::collectives::CostModel model;       // of the slowest: the same on all hosts
    uint64_t small_bytes = 0, bulk_bytes = 0;  // of the long operations
};
nexar::Result<Tuning> measure(const TuneJob& job);

}  // namespace nexarctl
