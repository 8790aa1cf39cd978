// failed() turns an Error into a status and stores it as the thread's last error.
#pragma once

#include <memory>
#include <string>

#include "core/result.hpp"
#include "nexar.h"
#include "shm_layout.h"

namespace nexar::c {

// The operation that failed. Errors of groups and requests have more fields than others.
struct ErrorContext {
    const char* op;
    const std::string* group = nullptr;  // name
    uint32_t epoch = 0;
    uint64_t sequence = NEXAR_NO_SEQUENCE;
    ErrorContext(const char* name) : op(name) {}  // NOLINT: most calls have no group
};

// Every failing function ends with one of these.
nexar_status failed(const ErrorContext& context, const Error& error);
nexar_status failed(const ErrorContext& context, Errc code, std::string text);
// From a slot's detail.
Error error_from(nexar_status code, const nexar_shm_detail& detail);

const nexar_error& last_error();
std::string error_line(const nexar_error& error);
const char* status_name(nexar_status status);
int32_t status_class(nexar_status status);

// Writes the node's 32 bytes as hexadecimal digits. Requires: `out` has NEXAR_NODE_TEXT bytes.
void node_text(const uint8_t node[32], char* out);

}  // namespace nexar::c
