// Class: the traffic classes of a connection, each an ordered byte stream of its own. Dry.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nexar {

// In the sender's strict order, with a floor for each. The numbers are on the wire.
enum class Class : uint8_t { control = 0, rpc = 1, small = 2, bulk = 3 };
constexpr size_t class_count = 4;
constexpr size_t index_of(Class cls) {
    return static_cast<size_t>(cls);
}

}  // namespace nexar
