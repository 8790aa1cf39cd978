// Groups as the client knows them, and where their rank and size come from.
#pragma once

#include <optional>
#include <string>

#include "core/result.hpp"
#include "core/time.hpp"
#include "nexar.h"

namespace nexar::c {

struct Group {
    uint64_t session = 0;  // handle
    uint32_t name = 0;     // as the daemon calls it
    uint32_t rank = 0;
    uint32_t size = 0;
    uint32_t segment_bytes = 0;          // what the daemon takes as one segment; 0: it cannot stage [S12]
    int64_t collective_timeout_ns = -1;  // < 0: the daemon's; 0: none
};

// nexar_group_options with its strings owned and its values checked.
struct GroupRequest {
    std::string name, secret;
    uint32_t size = 0, rank = 0;
    int64_t timeout_ms = -1, collective_timeout_ms = -1;
};
Result<GroupRequest> from_options(const nexar_group_options& options);
// `get` is getenv; tests give their own.
Result<GroupRequest> from_environment(const char* (*get)(const char*));

// Milliseconds as the ABI has them, to nanoseconds as the daemon has them. Saturates.
int64_t nanoseconds(int64_t ms);

}  // namespace nexar::c
