// Session's progress engine: it moves the bytes of staged requests, inside any call that waits, tests or
// polls [S12] [S13].
#include <bit>

#include "session.hpp"
#include "shm/words.hpp"
#include "sleep.hpp"

namespace nexar::c {

// The stage is stored before the daemon has the request, because the request may complete and its slot be
// reused at once. This thread holds stage_mutex until the SUBMIT entry is in the ring, so that no STAGE entry
// precedes it. Another thread that wants to make progress meanwhile sets progress_again, which this thread
// handles afterwards.
bool Session::push_staged(const Slot& slot, const Stage& stage) {
    Request& request = requests_[slot.index];
    {
        std::lock_guard lock(request.stage_mutex);
        request.stage = stage;
        request.stage_run = run_of(slot);
        staged_[slot.index / 64].fetch_or(uint64_t{1} << slot.index % 64, std::memory_order_release);
        staged_count_.fetch_add(1, std::memory_order_release);
        shm::fence();  // pairs with close(): either close() sees the stage, or this thread sees the close
        if (lost_code_.load(std::memory_order_relaxed) != 0 || !push_submission(slot)) {
            drop_stage(request, slot.index);
            return false;
        }
    }
    return true;
}

// The daemon has it.
void Session::after_staged(const Slot& slot) {
    progress_one(slot.index);
    // Sleeping threads must wake up and help to make progress.
    if (waiting_threads.load(std::memory_order_relaxed) != 0) sleepers_.nudge();
}

// Ensures: no thread touches the caller's memory afterwards. Waits for a thread that makes progress, at most
// for one pass. `run` 0: any.
uint64_t Session::end_stage(uint32_t slot, uint64_t run, bool take_rest) {
    Request& request = requests_[slot];
    std::lock_guard lock(request.stage_mutex);
    if (!request.stage || (run != 0 && run != request.stage_run)) return 0;
    const uint64_t bytes = take_rest ? request.stage.take_rest() : 0;
    drop_stage(request, slot);
    return bytes;
}

void Session::drop_stage(Request& request, uint32_t slot) {
    request.stage = {};
    staged_[slot / 64].fetch_and(~(uint64_t{1} << slot % 64), std::memory_order_release);
    staged_count_.fetch_sub(1, std::memory_order_release);
}

Session::Progress Session::progress_staged() {
    Progress out = Progress::nothing;
    if (!any_staged()) return out;
    for (uint32_t word = 0; word < staged_.size(); ++word)
        for (uint64_t bits = staged_[word].load(std::memory_order_acquire); bits != 0; bits &= bits - 1)
            out = std::max(out, progress_one(word * 64 + static_cast<uint32_t>(std::countr_zero(bits))));
    return out;
}

// Never waits for another thread that moves the same bytes. That thread may have missed what this one has
// seen, so it makes one more pass. (Of this thread's fence and the one after the other thread's unlock one is
// first: either the other thread sees progress_again, or this one gets the lock.)
Session::Progress Session::progress_one(uint32_t slot) {
    Request& request = requests_[slot];
    Progress out = Progress::nothing;
    request.progress_again.store(true, std::memory_order_release);
    shm::fence();
    while (request.progress_again.load(std::memory_order_relaxed)) {
        std::unique_lock lock(request.stage_mutex, std::try_to_lock);
        if (!lock) break;
        request.progress_again.exchange(false, std::memory_order_acq_rel);
        out = std::max(out, progress_once(request, slot));
        lock.unlock();
        shm::fence();
    }
    return out;
}

// One pass: up to the daemon's count at its start, so at most all windows in and all windows out.
Session::Progress Session::progress_once(Request& request, uint32_t slot) {
    Stage& stage = request.stage;
    if (!stage || lost_code_.load(std::memory_order_acquire) != 0) return Progress::nothing;
    auto& shared = control_.slot(slot);
    if (shm::load_acquire(shared.state) != pending_word(request.stage_run))
        return Progress::nothing;  // completed: finish() copies the rest
    stage.on_done(shm::load_acquire(shared.result.stage));
    Progress out = stage.unsent ? announce_stage(request, slot) : Progress::nothing;
    while (stage.can_take() || stage.can_fill()) {
        if (stage.can_take()) {
            count_copy(stage.take_next());
            shm::store_release(shared.stage_taken, stage.taken());
        }
        if (stage.can_fill()) {
            count_copy(stage.fill_next());
            shm::store_release(shared.stage_filled, stage.filled());
        }
        // After each segment, so that the daemon works on it while the next one is copied.
        out = std::max(out, announce_stage(request, slot));
    }
    return out;
}

Session::Progress Session::announce_stage(Request& request, uint32_t slot) {
    const shm::Entry entry{slot, static_cast<uint32_t>(request.stage_run), NEXAR_ENTRY_STAGE};
    const bool announced = push(entry, now() + std::chrono::seconds(1));
    request.stage.unsent = !announced;
    return announced ? Progress::something : Progress::unannounced;
}

}  // namespace nexar::c
