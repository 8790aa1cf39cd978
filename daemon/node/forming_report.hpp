// The JSON of a group that is forming, for nexarctl, and what its operator may look at.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/snapshot.hpp"
#include "node/report.hpp"

namespace nexar::node::report {

// What may keep a group from forming. The snapshot outlives it.
class Hints {
  public:
    explicit Hints(const engine::Snapshot& snapshot);
    // As sentences; empty: nothing is known to.
    std::vector<std::string> of(const engine::OpeningSnapshot& opening) const;

  private:
    using Name = std::pair<std::string, uint64_t>;  // with the opener's mark: a user's, not others' [R30]
    bool in_cluster_;
    std::map<Name, std::set<std::pair<std::string, bool>>> keys_;  // that wait; and whether they are local
    std::map<Name, std::set<size_t>> sizes_;                       // of groups that there are
};

nlohmann::ordered_json opening_json(const engine::OpeningSnapshot& opening, const Hints& hints,
                                    const HostNames& hosts);

}  // namespace nexar::node::report
