// One collective or message as the caller gave it: checked, and turned into a slot's descriptor and a plan
// for its memory. Errors name the argument.
#pragma once

#include "core/result.hpp"
#include "group.hpp"
#include "session.hpp"

namespace nexar::c {

struct Operation {
    const char* name;  // for errors
    uint8_t kind;
    const void* in = nullptr;
    void* out = nullptr;
    uint64_t count = 0;
    nexar_dtype dtype = NEXAR_U8;
    nexar_reduce_op op = NEXAR_SUM;
    uint32_t peer = 0;  // root, destination or source
    uint64_t tag = 0;
};

constexpr int64_t of_the_group = -1;

// timeout_ms as in the header; -1: the group's. `blocking`: the caller waits at once, for this alone.
Result<Slot> start(Session& session, const Group& group, const Operation& operation, bool blocking,
                   int64_t timeout_ms);
int64_t timeout_ns(const Group& group, int64_t timeout_ms);
uint64_t dtype_size(nexar_dtype dtype);

}  // namespace nexar::c
