// The clock that certificates are checked against; nothing else in the daemon uses it.
#pragma once

#include <ctime>

#include "core/time.hpp"

namespace nexar::node {

inline WallSeconds wall_now() {
    return std::time(nullptr);
}

}  // namespace nexar::node
