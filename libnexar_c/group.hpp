// Group: the library's record of an open group. GroupRequest: the checked arguments of an open.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
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
    uint32_t membership = 0;  // the daemon's handle for (group, epoch, rank)
    uint32_t rank = 0;
    uint32_t size = 0;
    uint32_t epoch = 0;
    uint64_t flags = 0;          // of its collectives: NEXAR_FLAG_...
    uint32_t segment_bytes = 0;  // the daemon's segment size; 0: the group has no staged operations [S12]
    std::shared_ptr<const std::string> name;  // until a child is open: its parent's
    // Of a child: its name follows when the number of the collective that made it is known.
    bool is_child = false;
    std::optional<uint32_t> colour;

    // A thread starts a collective or is inside a blocking one; a second thread gets BAD_STATE.
    std::atomic<bool> in_collective{false};
    std::atomic<bool> freeing{false};  // a thread is inside free_group()
    std::atomic<bool> open{false};     // the request to open it has completed
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
    uint64_t flags = 0;
};
// Of an operation or a group; `what`: "nexar_op_options". An error names the unknown bits.
Result<void> check_flags(uint64_t flags, const char* what);
nexar_group_options group_defaults();
Result<GroupRequest> from_options(const nexar_group_options& options);
nexar_shm_group_open payload_of(const GroupRequest& request);

// A group's time-out, of the option `name`: -1: the other ranks' value; 0: none.
Result<int64_t> group_timeout_ns(const char* name, int64_t ms);
// Milliseconds as the ABI has them, to nanoseconds as the daemon has them. Saturates.
int64_t nanoseconds(int64_t ms);

}  // namespace nexar::c
