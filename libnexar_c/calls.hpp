// What the exported operations share: a call from its handle to its status.
#pragma once

#include "operation.hpp"
#include "tables.hpp"

namespace nexar::c {

ErrorContext context_of(const Group& group, const Operation& operation);

// nexar_x_start and nexar_x.
nexar_status begin(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                   nexar_request* request);
// *message: of an mprobe that has succeeded.
nexar_status run(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                 nexar_completion* completion = nullptr, nexar_message* message = nullptr);

}  // namespace nexar::c
