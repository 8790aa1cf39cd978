// The option --node-index of what is started on several hosts. Without one each host would be the first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nexarctl {

// What is wrong with it; empty: nothing.
inline std::string node_index_complaint(uint64_t nodes, std::optional<uint64_t> index) {
    if (nodes > 1 && !index)
        return "--node-index is missing: with --nodes " + std::to_string(nodes) +
               " it is 0 on the first host, " + std::to_string(nodes - 1) + " on the last";
    if (index.value_or(0) >= nodes)
        return "--node-index " + std::to_string(*index) + " is not below --nodes " + std::to_string(nodes);
    return {};
}

}  // namespace nexarctl
