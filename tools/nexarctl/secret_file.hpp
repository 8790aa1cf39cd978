// A job's secret, out of a file of one line.
#pragma once

#include <string>

#include "core/result.hpp"

namespace nexarctl {

nexar::Result<std::string> read_secret(const std::string& path);

}  // namespace nexarctl
