// The users and groups that a configuration names, looked up on this host.
#pragma once

#include "config/config.hpp"

namespace nexar::config {

// bad_config names the key, its place and the name that this host does not know. Numbers are taken as they
// are.
Result<void> check_accounts(const Config& config);

}  // namespace nexar::config
