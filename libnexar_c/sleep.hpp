// Sleeping on several words at once: futex_waitv(2), or, where that is refused (old kernels, some sandboxes),
// on the first word in short slices. docs/protocol/shm.md [S9].
#pragma once

#include <cstdint>

#include "core/time.hpp"

namespace nexar::c {

struct Watched {
    uint32_t* word;
    uint32_t expected;  // sleeps only while the word has this value
};

enum class Woken { changed_or_woken, timed_out, signal };

// At most 4 words, shared between processes. The caller looks at the words after every return but timed_out.
Woken sleep_on(const Watched* words, unsigned count, Time until);

void wake_all(uint32_t* word);
Time now();

// Pause-spins until the word has changed or the time is up. `yield`: gives the processor away between looks.
bool stay_while(uint32_t& word, uint32_t expected, Duration at_most, bool yield);
unsigned usable_cores();

// Tests only: as if the kernel had no futex_waitv.
extern bool without_waitv;

}  // namespace nexar::c
