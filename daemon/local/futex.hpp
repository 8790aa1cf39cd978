// futex_wake: wakes sleepers on a word that is shared between processes.
#pragma once

#include <climits>
#include <cstdint>

namespace nexar::local {

// At most so many; returns how many.
int futex_wake(uint32_t* word, int most = INT_MAX);

}  // namespace nexar::local
