// What raises the deadline of an operation, for the text of the error that it ended with.
#pragma once

#include <string>

#include "core/operations.hpp"

namespace nexar::engine {

inline std::string timeout_advice(OpKind kind) {
    return is_barrier(row_of(kind))
               ? "to wait longer: timeout_ms of the call, barrier_timeout_ms of the group, or "
                 "NEXAR_BARRIER_TIMEOUT_SECS"
               : "to wait longer: timeout_ms of the call, collective_timeout_ms of the group, or "
                 "NEXAR_COLLECTIVE_TIMEOUT_SECS";
}

}  // namespace nexar::engine
