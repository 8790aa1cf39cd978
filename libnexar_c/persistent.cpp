// Session's persistent requests: prepared once, and started often in the same slot. Each start has a
// generation of its own in shared memory, the run; the handle's stays (docs/protocol/shm.md [S21]).
#include <cstring>

#include "session.hpp"
#include "shm/words.hpp"

namespace nexar::c {

void Session::make_persistent(const Taken& taken) {
    Request& request = requests_[taken.slot.index];
    std::lock_guard lock(request.mutex);
    request.persistent = true;
    request.plan.stage = taken.stage;
    request.outcome = std::make_unique<Outcome>();
    label(request, taken.slot, *request.outcome);
    request.outcome->completion.status = NEXAR_OK;
    make_inactive(request, taken.slot.index);
}

// Its outcome is that of its last start; before the first one NEXAR_OK. Requires: the daemon does not have
// it.
void Session::make_inactive(Request& request, uint32_t slot) {
    request.finished = true;
    request.inactive.store(true, std::memory_order_release);
    shm::store_release(control_.slot(slot).state, uint32_t{NEXAR_SLOT_FREE});
}

void Session::end_persistent(Request& request) {
    release_plan(request.plan);
    request.plan = {};
    request.persistent = false;
    request.inactive.store(false, std::memory_order_relaxed);
}

bool Session::is_inactive(const Slot& slot) const {
    const Request& request = requests_[slot.index];
    return request.inactive.load(std::memory_order_acquire) &&
           request.generation.load(std::memory_order_acquire) == slot.generation;
}

Result<Session::Persistent> Session::persistent(const Slot& slot) {
    Request& request = requests_[slot.index];
    std::lock_guard lock(request.mutex);
    if (request.generation.load(std::memory_order_relaxed) != slot.generation)
        return fail(Errc::bad_handle, "the request was freed, or never was one");
    if (!request.persistent)
        return fail(Errc::invalid_argument,
                    "the request is not persistent: only one of nexar_..._init can be "
                    "started");
    return Persistent{request.kind.load(std::memory_order_relaxed), request.label.group};
}

Result<Taken> Session::activate(const Slot& slot) {
    Request& request = requests_[slot.index];
    std::lock_guard lock(request.mutex);
    // With the lock: close() waits for it, and the caller's memory must not be touched afterwards.
    if (auto error = unusable()) return fail(*error);
    if (request.generation.load(std::memory_order_relaxed) != slot.generation)
        return fail(Errc::bad_handle, "the request was freed, or never was one");
    if (!request.inactive.load(std::memory_order_relaxed))
        return fail(Errc::bad_state, request.finished || is_completed(slot)
                                         ? "the request's last start has ended, but no call has returned its "
                                           "end: wait for it or test it first"
                                         : "the request is pending: wait for it first");
    fill(request.plan);
    const uint64_t run = pool_.renew(slot.index);
    request.finished = request.seen = false;
    request.inactive.store(false, std::memory_order_relaxed);
    request.run.store(run, std::memory_order_release);
    mark_pending(slot.index, run);
    return Taken{slot, request.plan.stage};
}

void Session::fill(const Plan& plan) {
    if (plan.fill_bytes == 0) return;
    std::memcpy(plan.fill_to, plan.fill_from, plan.fill_bytes);
    count_copy(plan.fill_bytes);
}

}  // namespace nexar::c
