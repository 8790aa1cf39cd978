// The other ranks, over include/nexar.h. The only place in this example that calls nexar.
#pragma once

#include <memory>

#include "peers.hpp"

namespace digits {

// Opens a session with the local daemon and the group that the environment names (nexarctl run sets it).
Outcome<std::unique_ptr<Peers>> open_nexar_peers();

}  // namespace digits
