// The thread's last error, and how a Result becomes a status.
#pragma once

#include <string>

#include "core/result.hpp"
#include "nexar.h"
#include "shm_layout.h"

namespace nexar::c {

// Every failing function ends with one of these.
nexar_status failed(const char* op, const Error& error);
nexar_status failed(const char* op, Errc code, std::string text);
// From a slot's detail.
Error error_from(nexar_status code, const nexar_shm_detail& detail);

nexar_status copy_last_error(nexar_error* out);
const char* status_name(nexar_status status);
int32_t status_class(nexar_status status);

// The node's digits out of 32 bytes; size at least NEXAR_NODE_TEXT.
void node_text(const uint8_t node[32], char* out);

}  // namespace nexar::c
