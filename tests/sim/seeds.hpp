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

// The everyday build runs all seeds. Under the address sanitizer, where each costs four times as much, a
// third reaches the same lines.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define NEXAR_SIM_FEWER_SEEDS
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define NEXAR_SIM_FEWER_SEEDS
#endif
#ifdef NEXAR_SIM_FEWER_SEEDS
constexpr uint64_t seeds_share = 3;
#else
constexpr uint64_t seeds_share = 1;
#endif

inline auto seeds(uint64_t usual) {
    const uint64_t first = environment("NEXAR_SIM_FIRST", 1);
    return std::views::iota(first,
                            first + environment("NEXAR_SIM_SEEDS", (usual + seeds_share - 1) / seeds_share));
}

// All seeds of all tests run, and no others.
inline bool all_seeds() {
    return seeds_share == 1 && std::getenv("NEXAR_SIM_SEEDS") == nullptr;
}

// What a test is about has happened in one of the seeds, or only some of them ran.
inline bool met(uint64_t times) {
    return times > 0 || !all_seeds();
}

}  // namespace nexar::sim
