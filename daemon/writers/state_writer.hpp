// StateWriter: the storage port over a state directory. Its thread makes the system calls [K1], one batch
// after the other; the control loop keeps the queue and hands each batch to it. There is no lock between
// them.
//
// Thread: the public functions belong to the control loop.
#pragma once

#include <atomic>
#include <thread>

#include "loop/wakeup.hpp"
#include "storage/write_queue.hpp"
#include "writers/state_dir.hpp"

namespace nexar::writers {

class StateWriter final : public storage::Port {
  public:
    StateWriter(const StateDir& state, loop::Wakeup& loop_wakeup);
    ~StateWriter() override;  // when all that was handed over is done
    StateWriter(const StateWriter&) = delete;
    StateWriter& operator=(const StateWriter&) = delete;

    // An error: it lacks a descriptor, and must not be used.
    Result<void> made() const { return news_.made() ? end_.made() : news_.made(); }
    storage::Saving save(storage::Batch batch) override;
    // Settles what is done. True: there was an outcome. Requires: called in each turn of the loop.
    bool step();
    // Waits for the disk: for a daemon's start only, before the loop runs.
    void wait_for(const storage::Saving& saving);

  private:
    enum class Phase : uint8_t { idle, work, done };
    void run();
    void hand_over();
    void wait_for_disk();
    bool has_news() const { return phase_ == Phase::work || stopping_; }

    const StateDir* state_;
    loop::Wakeup* loop_wakeup_;
    loop::Wakeup news_;  // the thread's
    loop::Wakeup end_;   // wait_for_disk()'s
    storage::WriteQueue queue_;
    // work: batch_ belongs to the thread; done: outcome_ belongs to the loop again.
    std::atomic<Phase> phase_{Phase::idle};
    std::atomic<bool> stopping_{false};
    const storage::Batch* batch_ = nullptr;
    storage::Outcome outcome_;
    std::thread thread_;
};

}  // namespace nexar::writers
