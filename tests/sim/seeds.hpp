// Which seeds a test runs: NEXAR_SIM_FIRST=s begins at seed s, NEXAR_SIM_SEEDS=n runs n of them.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ranges>

namespace nexar::sim {

inline uint64_t environment(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

inline auto seeds(uint64_t usual) {
    const uint64_t first = environment("NEXAR_SIM_FIRST", 1);
    return std::views::iota(first, first + environment("NEXAR_SIM_SEEDS", usual));
}

}  // namespace nexar::sim
