// futex_wake_all: wakes all sleepers on a word that is shared between processes.
#pragma once

#include <cstdint>

namespace nexar::local {

void futex_wake_all(uint32_t* word);

}  // namespace nexar::local
