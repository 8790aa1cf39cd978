// Account: whom the engine charges for what a link keeps and sends: the number of a tenant.
#pragma once

#include <cstdint>

#include "core/ids.hpp"

namespace nexar::link {

using Account = Id<struct AccountTag, uint64_t>;

}  // namespace nexar::link
