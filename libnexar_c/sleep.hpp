// Futexes and the clock: sleeping on several words at once or on one, waking, and polling a word. Sleepers
// chooses between them (docs/protocol/shm.md [S9]). Source: futex_waitv(2), futex(2).
#pragma once

#include <time.h>

#include <cstdint>

#include "core/time.hpp"
#include "core/yields.hpp"

namespace nexar::c {

struct Watched {
    uint32_t* word;
    uint32_t expected;  // sleeps only while the word has this value
};

// hung_up: the daemon's end of the socket is closed.
enum class Woken { changed_or_woken, timed_out, signal, hung_up };

// Whether futex_waitv works in this process: the kernel may lack it, or a sandbox refuse it.
bool waitv_works();
// At most 4 words, shared between processes. The caller reads the words after every return but timed_out.
Woken sleep_on(const Watched* words, unsigned count, Time until);
Woken sleep_on_one(const Watched& word, Time until);

void wake_all(uint32_t* word);
Time now();
// The longest time-out in milliseconds that can be added to now(); longer ones mean the same as none.
constexpr int64_t timeout_ms_max = INT64_MAX / 4'000'000;
timespec spec_of(Duration d);

// Polls until the word has changed or the time has passed. True: the word has changed.
bool spin_while(uint32_t& word, uint32_t expected, Duration at_most);
// The same, and yields the processor between two reads, as long as that pays.
bool yield_while(uint32_t& word, uint32_t expected, Duration at_most, Yields& yields);

}  // namespace nexar::c
