// The JSON of a group that is forming, for nexarctl, and what its operator may look at.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/snapshot.hpp"
#include "node/report.hpp"

namespace nexar::node::report {

// What may keep the group from forming, as sentences; empty: nothing is known to.
std::vector<std::string> hints_of(const engine::OpeningSnapshot& opening, const engine::Snapshot& snapshot);

nlohmann::ordered_json opening_json(const engine::OpeningSnapshot& opening, const engine::Snapshot& snapshot,
                                    const HostNames& hosts);

}  // namespace nexar::node::report
