// Checks of a client's descriptors and opens, apart from the memory that they name: each field has an allowed
// range, and a field that the kind of request does not use is 0 [S14].
// Requires: the arguments are private copies, not shared memory.
#pragma once

#include <cstdint>

#include "core/result.hpp"
#include "engine/ports.hpp"
#include "shm_layout.h"

namespace nexar::local {

const char* kind_name(uint8_t kind);  // "all_reduce", "group_open", ...; "unknown"

Result<void> check_fields(const nexar_shm_descriptor& asked);
// Requires: `asked` is an operation that check_fields() has accepted.
Result<engine::OpDescriptor> descriptor_from(const nexar_shm_descriptor& asked);

// Bytes of `in` and `out` of an operation at `rank` in a group of `size` ranks, checked for overflow.
struct Lengths {
    uint64_t in = 0, out = 0;
};
// `counts`, `own_counts`: null where it has no such lists.
Result<Lengths> lengths_of(const engine::OpDescriptor& descriptor, uint32_t size, uint32_t rank,
                           const Counts* counts, const OwnCounts* own_counts);

// The engine's request, without the fields that identify the session.
// The reason of an abort, as one line: without control characters.
Result<std::string> reason_from(const nexar_shm_group_abort& asked);
Result<engine::ChildRequest> child_request_from(const nexar_shm_group_child& asked, engine::OpKind kind);
// Without its parent and its list.
Result<engine::OpenRequest> create_request_from(const nexar_shm_group_create& asked);
Result<engine::OpenRequest> open_request_from(const nexar_shm_group_open& asked);

}  // namespace nexar::local
