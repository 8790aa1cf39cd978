// Names and times for the tests of this folder.
#pragma once

#include "core/ids.hpp"
#include "core/time.hpp"

namespace nexar::connections {

inline NodeId node_id(unsigned n) {  // ascending in n
    NodeId id;
    id.bytes[0] = static_cast<uint8_t>(n + 1);
    id.bytes[31] = 0x77;
    return id;
}
constexpr Time at_ms(int64_t n) {
    return Time(std::chrono::milliseconds(n));
}

}  // namespace nexar::connections
