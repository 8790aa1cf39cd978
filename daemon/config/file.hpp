// Reads the configuration file; it, and accounts.hpp, ask the system; the rest of this module is pure.
#pragma once

#include <optional>
#include <string>

#include "core/result.hpp"

namespace nexar::config {

// Nothing: there is no such file. A file that cannot be read is an error: a daemon must not run with defaults
// in place of what its operator configured.
Result<std::optional<std::string>> read_file(const std::string& path);

}  // namespace nexar::config
