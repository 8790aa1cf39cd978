// No descriptor: the error of what the system did not make for the daemon, and what to do.
#pragma once

#include <string>

#include "core/result.hpp"

namespace nexar::loop {

// `what`: "an eventfd". The reason is errno's; its text names the limit that it is about.
std::unexpected<Error> fail_without_descriptor(const std::string& what);

}  // namespace nexar::loop
