// What a client may write into a descriptor or an open, apart from the memory that it names: each field has
// an allowed range, and what a request of its kind does not use is 0 [S14]. Works on copies.
#pragma once

#include <cstdint>

#include "core/result.hpp"
#include "engine/ports.hpp"
#include "shm_layout.h"

namespace nexar::local {

const char* kind_name(uint8_t kind);  // "all_reduce", "group_open", ...; "unknown"

Result<void> check_fields(const nexar_shm_descriptor& asked);
// Of an operation whose words are good.
Result<engine::OpDescriptor> descriptor_from(const nexar_shm_descriptor& asked);

// Bytes of `in` and `out` for an operation, checked for overflow; for a group of `size` ranks where this is
// `rank`.
struct Lengths {
    uint64_t in = 0, out = 0;
};
Result<Lengths> lengths_of(const engine::OpDescriptor& descriptor, uint32_t size, uint32_t rank);

// What is asked of the engine, but for who asks.
Result<engine::OpenRequest> open_request_from(const nexar_shm_group_open& asked);

}  // namespace nexar::local
