// Lanes: work that takes as long as a client likes, on threads of its own. Work of one lane is done in the
// order in which it came; how long it takes holds up no other lane, up to `threads_max` that are stuck at a
// time.
//
// Thread: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "core/result.hpp"

namespace nexar::loop {

class Lanes {
  public:
    using Work = std::move_only_function<void()>;

    // One thread stays, so that work is done also where the system has no thread left for a moment; others
    // end when they have nothing to do for a second. An error: no descriptor or thread is left for that one.
    static Result<Lanes> open(size_t threads_max);
    // Waits for nothing: the threads end when all is done. What is stuck then is left to the end of the
    // process.
    ~Lanes();
    Lanes(Lanes&&) = default;  // what is moved from may end, and nothing else
    Lanes& operator=(Lanes&&) = delete;

    // `weight` counts until the work is done, and what it holds has been destroyed.
    void add(uint64_t lane, size_t weight, Work work);
    size_t weight(uint64_t lane) const;
    size_t weight() const;  // of all lanes

    // Until all is done, for tests: false after `seconds`.
    bool idle_within(unsigned seconds) const;

  private:
    struct State;
    explicit Lanes(std::shared_ptr<State> state) : state_(std::move(state)) {}
    static bool start_thread(const std::shared_ptr<State>& state, bool stays);
    static void run(const std::shared_ptr<State>& state, bool stays);
    std::shared_ptr<State> state_;  // also the threads'
};

}  // namespace nexar::loop
