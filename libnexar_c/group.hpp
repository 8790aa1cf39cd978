// Groups as the client knows them, and how one asks for them.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "core/result.hpp"
#include "core/time.hpp"
#include "nexar.h"
#include "shm_layout.h"

namespace nexar::c {

struct Group {
    uint64_t session = 0;  // handle
    uint64_t handle = 0;   // its own
    uint32_t fork_epoch = 0;
    uint32_t membership = 0;  // (group, epoch, rank), as the daemon calls it
    uint32_t rank = 0;
    uint32_t size = 0;
    uint32_t epoch = 0;
    uint32_t segment_bytes = 0;  // what the daemon takes as one segment; 0: it cannot stage [S12]
    std::shared_ptr<const std::string> name;

    // A thread starts a collective, or is inside a blocking one: the header's rule for threads.
    std::atomic<bool> in_collective{false};
    std::atomic<bool> freeing{false};
    std::atomic<bool> open{false};  // nexar_group_open_start: not before its request has ended
};

// nexar_group_options with its strings owned and its values checked.
struct GroupRequest {
    std::string name, secret;
    uint32_t size = 0, rank = 0;
    int64_t timeout_ms = NEXAR_TIMEOUT_DEFAULT;
    int64_t collective_timeout_ms = NEXAR_TIMEOUT_DEFAULT;
    int64_t barrier_timeout_ms = NEXAR_TIMEOUT_DEFAULT;
    int64_t rpc_timeout_ms = NEXAR_TIMEOUT_DEFAULT;
    uint64_t user_data = 0;
};
nexar_group_options group_defaults();
Result<GroupRequest> from_options(const nexar_group_options& options);
nexar_shm_group_open payload_of(const GroupRequest& request);

// Milliseconds as the ABI has them, to nanoseconds as the daemon has them. Saturates.
int64_t nanoseconds(int64_t ms);

}  // namespace nexar::c
