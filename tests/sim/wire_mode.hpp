// Over which carrier bulk data goes in a run of the simulator: NEXAR_SIM_CARRIER=quic, tcp, or switch: each
// bulk connection moves to the other carrier again and again while it works. Without it: what a test says,
// mostly QUIC.
#pragma once

#include <cstdlib>
#include <string_view>

#include "core/check.hpp"

namespace nexar::sim {

enum class WireMode { as_tested, quic, tcp, switching };

inline WireMode wire_mode() {
    const char* text = std::getenv("NEXAR_SIM_CARRIER");
    if (text == nullptr) return WireMode::as_tested;
    const std::string_view name(text);
    NEXAR_CHECK(name == "quic" || name == "tcp" || name == "switch");
    return name == "quic" ? WireMode::quic : name == "tcp" ? WireMode::tcp : WireMode::switching;
}

// What a move loses is sent again, so what tests count of bytes holds without moves only.
inline bool bytes_are_exact() {
    return wire_mode() != WireMode::switching;
}

}  // namespace nexar::sim
