// Renderer: makes the text of an answer of a plain copy of what it is about, on a thread: that may take many
// milliseconds, and the loop has none for it [N17]. One at a time, so that only one copy exists.
//
// Thread: the public functions belong to the control loop.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "control/facade.hpp"
#include "core/result.hpp"
#include "loop/wakeup.hpp"

namespace nexar::node {

class Renderer {
  public:
    using Work = std::move_only_function<Result<std::string>()>;

    explicit Renderer(loop::Wakeup& loop_wakeup);
    ~Renderer();  // when what it works on is done
    Renderer(const Renderer&) = delete;
    Renderer& operator=(const Renderer&) = delete;

    Result<void> made() const {
        return news_.made();
    }  // an error: it lacks a descriptor, and must not be used
    bool is_free() const { return phase_ == Phase::idle; }
    // Requires: is_free(). `work` has a copy of all that it needs, and is destroyed on the thread.
    void start(Work work, control::Answer answer);
    // Gives the answer that is done. True: there was one. Requires: called in each turn of the loop.
    bool step();

  private:
    enum class Phase : uint8_t { idle, work, done };
    void run();
    bool has_news() const { return phase_ == Phase::work || stopping_; }

    loop::Wakeup* loop_wakeup_;
    // The thread's. Not a wait for phase_: the wake of a futex goes through all that waits in its hash
    // bucket, and the loop has no time for that.
    loop::Wakeup news_;
    // work: work_ and result_ belong to the thread; otherwise they are the loop's.
    std::atomic<Phase> phase_{Phase::idle};
    std::atomic<bool> stopping_{false};
    Work work_;
    Result<std::string> result_;
    control::Answer answer_;
    std::thread thread_;
};

}  // namespace nexar::node
