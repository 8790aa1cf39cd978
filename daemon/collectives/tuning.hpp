// What `nexarctl tune` has found and a node keeps, for the groups that it makes (docs/protocol/planning.md).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/cost_model.hpp"
#include "core/result.hpp"

namespace nexar::collectives {

constexpr uint32_t doubling_bytes_most = 1 << 30;
constexpr const char* doubling_name = "doubling_bytes_max";
constexpr const char* doubling_meaning =
    "all_reduce by recursive doubling up to here; of two hosts twice as much";

struct Tuning {
    CostModel model;
    // Of more than two hosts (doubling_bytes_among says of two); 0: no race was run, and the built-in limit
    // stands.
    uint32_t doubling_bytes_max = 0;
    bool operator==(const Tuning&) const = default;
};

// As an object of a JSON library: a member for each number that there is.
template <class Json>
Json object_of(const Tuning& tuning) {
    Json out = object_of<Json>(tuning.model);
    if (tuning.doubling_bytes_max > 0) out[doubling_name] = tuning.doubling_bytes_max;
    return out;
}

// As nexard keeps it: the lines of the model, and one of the limit if there is one. An error names the line.
std::string text_of(const Tuning& tuning);
Result<Tuning> tuning_from(std::string_view text);

}  // namespace nexar::collectives
