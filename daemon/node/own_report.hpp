// The JSON that a status socket answers one user of the host with: his own, and nothing by which others could
// be known (docs/protocol/control.md [C8]). Pure.
#pragma once

#include <string>
#include <vector>

#include "core/tenant.hpp"
#include "node/report.hpp"

namespace nexar::node::report {

struct OwnSession {
    uint32_t pid = 0;
    uint64_t memory_bytes = 0;
    uint64_t ops_in_flight = 0;
};

struct OwnStatus {
    TenantName tenant;
    NodeId node;
    std::string host;
    std::string cluster_name;  // empty: in no cluster
    std::string version;
    std::string state;  // as in Status
    Duration uptime{0};
    std::vector<Peer> peers;  // shown without addresses, counters and reasons
    std::vector<OwnSession> sessions;
    size_t groups = 0, ops_in_flight = 0;
    std::optional<Use> use{};  // with his row alone; none yet
};
std::string own_status(const OwnStatus& status);

}  // namespace nexar::node::report
