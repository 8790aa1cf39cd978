// How many bytes that it cannot send yet the kernel is to take of a connection (docs/protocol/tcp.md):
// nothing urgent overtakes them, and with too few the sender's thread is woken for every record. Dry.
#pragma once

#include <algorithm>
#include <cstdint>

namespace nexar::tcp {

// At the lower limit the two ends' threads wake each other for every 64 KiB; the upper one is as much as
// QUIC's connection keeps of bulk.
constexpr uint64_t unsent_min = 128 << 10, unsent_max = 2 << 20;

// What leaves in 5 ms; 0 bytes per second: not measured.
constexpr uint64_t unsent_limit(uint64_t bytes_per_second) {
    return std::clamp(bytes_per_second / 200, unsent_min, unsent_max);
}

}  // namespace nexar::tcp
