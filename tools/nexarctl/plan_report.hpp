// The plan of one operation as JSON, and that as text. Pure.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "collectives/plan.hpp"
#include "core/result.hpp"

namespace nexarctl {

struct PlanQuestion {
    std::string op;
    nexar::collectives::Shape shape;
    std::vector<uint32_t> node_of_rank;
    std::vector<std::string> names;  // of the nodes; may be empty
    nexar::collectives::PlanTable table;
    std::string model_from;  // where the table's cost model is from, for people
};
nexar::Result<nlohmann::ordered_json> plan_report(const PlanQuestion& question);
std::string render_plan(const nlohmann::ordered_json& report);
// The cost model of a daemon's answer; what is missing is 0.
nexar::collectives::CostModel model_of(const nlohmann::ordered_json& object);
// A group's table and the nodes of its ranks, out of the answer to `plan`. False: it names no ranks.
bool read_group(const nlohmann::ordered_json& answer, PlanQuestion& question);

}  // namespace nexarctl
