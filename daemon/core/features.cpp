#include "core/features.hpp"

namespace nexar {

std::string Capabilities::versions() const {
    const std::string lowest = "nexar/" + std::to_string(version_min);
    return version_min == version_max ? lowest : lowest + " to nexar/" + std::to_string(version_max);
}

std::optional<Agreed> agreed(const Capabilities& ours, const Capabilities& theirs) {
    const uint16_t low = std::max(ours.version_min, theirs.version_min);
    const uint16_t high = std::min(ours.version_max, theirs.version_max);
    if (low > high) return std::nullopt;
    return Agreed{high, ours.features & theirs.features};
}

}  // namespace nexar
