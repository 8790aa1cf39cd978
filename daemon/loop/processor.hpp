// What a thread of the daemon asks of the kernel about its processor (docs/decisions/0023).
#pragma once

#include <cstdint>

#include "core/time.hpp"
#include "core/yields.hpp"

namespace nexar::loop {

// A slice: how long a thread runs before the kernel looks at which other one is next. It changes nothing of a
// thread's share of the processor. One that wakes, has a shorter slice than the one that runs, and has used
// less than its share, is put before it at once.
enum class Slice : uint8_t {
    control,  // the kernel's shortest, 100 us: the control loop's turns are about as long but for [T8]
    usual,    // the kernel's own, 1 to 4 ms: of other threads, and of programs
    bulk,     // a quarter more: of shards and workers
};

// Of the calling thread, and of threads that it starts from now on. False: this kernel has no such choice
// (before 6.12), or refuses it; the thread goes on as before. It needs no privilege.
bool set_slice(Slice slice);

// Yields the processor, if that pays; `now`: the time, also afterwards. False: sleep instead.
bool yield(Yields& yields, Time& now);

// Between two pieces of bulk: the control loop, a program that waits for a result, and other pieces come
// before the next one, which they would otherwise only at the kernel's tick, up to 4 ms later. If that pays.
class Courtesy {
  public:
    void give_way();  // of the thread that calls

  private:
    Yields yields_ = Yields::between_pieces();
};

// How the control loop waits: it yields, with the kernel's own slice, as long as yields are short. Beside
// threads that compute, or bulk of this daemon's, it sleeps, and has the shortest slice, so that it runs as
// soon as it is woken. Not always the shortest: a yield forfeits what is left of a slice, so among threads
// that only yield one with short slices takes many turns for one of the others. Of the thread that calls.
class WaitPolicy {
  public:
    bool try_slices();  // finds out whether slices can be chosen, before the first yield; false: they cannot
    bool yield(Time& now, bool may_pay);  // `may_pay`: Yields::may_pay()

  private:
    void use(bool short_slice);

    Yields yields_;
    bool has_choice_ = false, is_short_ = false;
};

}  // namespace nexar::loop
