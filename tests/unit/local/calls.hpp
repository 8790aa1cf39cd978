// What calls of include/nexar.h need in these tests.
#pragma once

#include "nexar.h"

namespace nexar::test {

// Options with nothing but a time-out; good until this thread's next one.
inline const nexar_op_options* within(int64_t timeout_ms) {
    thread_local nexar_op_options options;
    options = NEXAR_OP_OPTIONS_INIT;
    options.timeout_ms = timeout_ms;
    return &options;
}

}  // namespace nexar::test
