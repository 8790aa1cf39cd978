// What a thread of the daemon asks of the kernel about its processor (docs/decisions/0023).
#pragma once

#include "core/time.hpp"
#include "core/yields.hpp"

namespace nexar::loop {

// Slices: how long a thread runs before the kernel looks at which other one is next. A short one gives no
// larger share of the processor: its thread is sooner on it when it wakes, and sooner off it for others that
// wake.
constexpr Duration control_slice{100'000};  // the kernel's shortest; the control loop's turns are shorter
constexpr Duration bulk_slice{300'000};     // of shards and workers: a few pieces [K26]
constexpr Duration usual_slice{0};          // the kernel's own, 1 to 4 ms

// Of the calling thread, and of threads that it starts from now on. False: this kernel has no such choice
// (before 6.12), or refuses it; the thread goes on as before. It needs no privilege.
bool set_slice(Duration slice);

// Yields the processor, if that pays; `now`: the time, also afterwards. False: sleep instead.
bool yield(Yields& yields, Time& now);

}  // namespace nexar::loop
