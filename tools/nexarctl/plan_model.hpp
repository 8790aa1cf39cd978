// Which cost model a plan of no group has.
#pragma once

#include <string>

#include "collectives/tuning.hpp"
#include "core/result.hpp"

namespace nexarctl {

struct PlanModel {
    nexar::collectives::Tuning model;
    std::string from;      // for people: where it is from
    bool decides = false;  // a group of it goes by the model; else by size, and the model only predicts
};
// `given`: --model; empty: the one that this host's daemon was tuned to, where one answers; else the built-in
// one. An error begins with what was given, and says what is allowed.
nexar::Result<PlanModel> plan_model(const std::string& given, const std::string& admin_socket);

// "small_start_ns,...": the order of a list of numbers.
std::string parameter_names();

}  // namespace nexarctl
