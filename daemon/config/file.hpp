// Reading the configuration file: apart from the rest, which is pure.
#pragma once

#include <optional>
#include <string>

#include "core/result.hpp"

namespace nexar::config {

// None: there is no such file. One that is there and cannot be read is an error: a daemon that went on with
// its defaults would be another one than its owner configured.
Result<std::optional<std::string>> read_file(const std::string& path);

}  // namespace nexar::config
