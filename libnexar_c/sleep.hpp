// Futexes and the clock: sleeping on several words at once (futex_waitv(2)) or on one, waking, and staying
// awake for a while. sleepers.hpp chooses. docs/protocol/shm.md [S9].
#pragma once

#include <time.h>

#include <cstdint>

#include "core/time.hpp"

namespace nexar::c {

struct Watched {
    uint32_t* word;
    uint32_t expected;  // sleeps only while the word has this value
};

// hung_up: the daemon's end of the socket is closed.
enum class Woken { changed_or_woken, timed_out, signal, hung_up };

// Whether this kernel has futex_waitv, and lets us. Asks it.
bool waitv_works();
// At most 4 words, shared between processes. The caller looks at the words after every return but timed_out.
Woken sleep_on(const Watched* words, unsigned count, Time until);
Woken sleep_on_one(const Watched& word, Time until);

void wake_all(uint32_t* word);
Time now();
timespec spec_of(Duration d);

// Pause-spins until the word has changed or the time is up. `yield`: gives the processor away between looks.
bool poll_while(uint32_t& word, uint32_t expected, Duration at_most, bool yield);

}  // namespace nexar::c
