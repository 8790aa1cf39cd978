// Operation: the arguments of one collective or message. start() checks them and makes a slot's descriptor
// and a plan for the memory. Errors name the argument.
#pragma once

#include "core/operations.hpp"
#include "core/result.hpp"
#include "group.hpp"
#include "session.hpp"

namespace nexar::c {

struct Operation {
    uint8_t kind;
    const void* in = nullptr;
    void* out = nullptr;
    uint64_t count = 0;
    nexar_dtype dtype = NEXAR_F32;     // 0, also where there are no elements
    const uint64_t* counts = nullptr;  // of a row that has_counts(): one for each rank; else what is sent
    const uint64_t* receive_counts = nullptr;  // of a row that has_own_counts()
    nexar_reduce_op op = NEXAR_SUM;
    uint32_t peer = 0;                    // root, destination or source
    uint64_t tag = 0;                     // of a row of_apart: the number of the message
    const nexar_piece* pieces = nullptr;  // sendv, recvv: instead of `in` or `out`, and of `count`
    uint64_t piece_count = 0;
    bool in_pieces = false;
    bool replaces = false;         // of a send: its memory is written while it is pending
    const char* called = nullptr;  // the function's name, for errors; null: the kind's
};

// nexar_op_options, checked; in the daemon's units.
struct OpOptions {
    int64_t timeout_ns = -1;  // -1: the group's; 0: none
    uint64_t match_id = 0;
    uint64_t user_data = 0;
    uint64_t scalar = 0;  // premul_sum: one element
    uint8_t priority = NEXAR_SHM_PRIORITY_DEFAULT;
    uint64_t flags = 0;  // NEXAR_FLAG_...
};
nexar_op_options op_defaults();
Result<OpOptions> read_op_options(const Operation& operation, const nexar_op_options* given);

// Checks the arguments, takes memory and a slot, and fills it. The caller submits it (Session::submit_taken)
// or drops it (Session::drop_taken), or makes it persistent.
Result<Taken> prepare(Session& session, const Group& group, const Operation& operation, Use use,
                      const OpOptions& options);
uint64_t dtype_size(nexar_dtype dtype);

}  // namespace nexar::c
