// CrowdWaker: wakes sleepers on words that are shared with clients. A client may have thousands on one word,
// and to wake them takes milliseconds: the calling thread wakes a few, and a thread of this object the rest.
// And the kernel goes through all that sleep on words of the same hash bucket, of which a client may have
// hundreds of thousands: a user whose wakes are slow is woken by those threads alone for a while
// (docs/protocol/shm.md [S17]).
//
// Thread: the control loop's; the destructor's is any.
#pragma once

#include <climits>
#include <cstdint>
#include <functional>
#include <memory>

#include "core/time.hpp"
#include "loop/lanes.hpp"

namespace nexar::local {

class CrowdWaker {
  public:
    // Wakes at most so many sleepers, and returns how many.
    using Wake = std::function<int(uint32_t* word, int most)>;
    struct Clocks {
        std::function<Time()> wall;
        std::function<Time()> own;  // what the calling thread has had of the processor: a system call
    };
    static Clocks system_clocks();

    static constexpr int here_max = 8;
    // A wake is slow that takes so long, and so much more for each sleeper that it woke.
    static constexpr Duration slow{100'000}, slow_each{10'000};
    // Until a user is woken here again whose wakes took more than `excess_max` beyond that. Of what they
    // took, one part in `forgiven_in` is forgiven in each time: a virtual machine that stands still makes
    // wakes slow, too.
    static constexpr Duration apart{1'000'000'000}, excess_max{2'000'000};
    static constexpr int64_t forgiven_in = 500;

    // The kernel's; others in tests.
    static Result<std::unique_ptr<CrowdWaker>> open(Wake wake = {}, Clocks clocks = system_clocks());
    ~CrowdWaker();  // after it has woken all, or a minute
    CrowdWaker(const CrowdWaker&) = delete;
    CrowdWaker& operator=(const CrowdWaker&) = delete;

    // All that sleep on the word now. `memory` keeps the word mapped. A user's crowds wait for each other.
    void wake_all(uint64_t user, uint32_t* word, std::shared_ptr<const void> memory);
    // For tests: threads have nothing left to wake. False after `seconds`.
    bool idle_within(unsigned seconds) const { return lanes_.idle_within(seconds); }

  private:
    struct State;
    CrowdWaker(std::shared_ptr<State> state, loop::Lanes lanes)
        : state_(std::move(state)), lanes_(std::move(lanes)) {}
    int wake_here(uint64_t user, uint32_t* word, bool measured);

    const std::shared_ptr<State> state_;  // also the threads'
    loop::Lanes lanes_;                   // by user
};

}  // namespace nexar::local
