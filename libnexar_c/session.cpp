// See session.hpp.
#include "session.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/cores.hpp"
#include "core/operations.hpp"
#include "errors.hpp"
#include "opening.hpp"
#include "shm/words.hpp"
#include "sleep.hpp"

namespace nexar::c {

namespace {

// Slots of a new session start above all generations of older sessions, so that a stale handle is recognized
// when a new session has the index of its session.
std::atomic<uint64_t> generation_floor{0};

bool is_receive(uint8_t kind) {
    return kind == NEXAR_OP_RECV || kind == NEXAR_OP_MRECV;
}
bool is_probe(uint8_t kind) {
    return kind == NEXAR_OP_PROBE || kind == NEXAR_OP_MPROBE;
}

// The message's bytes into those pieces that are ordinary memory. Returns how many were copied.
uint64_t copy_pieces(const PlanPieces& plan, uint64_t bytes) {
    uint64_t copied = 0;
    for (const PlanPieces::Piece& piece : plan.pieces) {
        const uint64_t part = std::min(piece.bytes, bytes);
        bytes -= part;
        if (!piece.to || part == 0) continue;
        std::memcpy(piece.to, piece.from, part);
        copied += part;
    }
    return copied;
}

Error closed_error() {
    return Error{Errc::closed, "the session was closed", -1, -1, {}};
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
    NEXAR_TRY(auto connection, Connection::open(options.connect));
    auto session = std::unique_ptr<Session>(new Session(options, std::move(connection)));
    NEXAR_TRY_VOID(session->sleepers_.open());
    static_cast<void>(usable_cores());  // reads files at its first call: not amid the first wait
    return session;
}

Session::Session(const SessionOptions& options, std::unique_ptr<Connection> connection)
    : options_(options),
      connection_(std::move(connection)),
      control_(connection_->control()),
      submission_(control_),
      pool_(control_.slots()),
      requests_(control_.slots()),
      scratch_(
          options.scratch_limit, [this](uint64_t bytes) { return make_region(bytes, true, {}); },
          [this](Region* region) { static_cast<void>(release(region->base, true)); }),
      window_(options.spin),
      sleepers_(*connection_),
      completions_(control_),
      reported_(control_.slots()),
      staged_((control_.slots() + 63) / 64),
      tick_watch_(options.daemon_unresponsive) {}

Session::~Session() {
    uint64_t floor = generation_floor.load();
    const uint64_t mine = pool_.highest_generation();
    while (floor < mine && !generation_floor.compare_exchange_weak(floor, mine)) {
    }
}

void Session::set_index(uint32_t index) {
    handle_index = index;
    // Not in the constructor: the previous session of this index may end between the two calls.
    pool_.start_above(generation_floor.load(std::memory_order_acquire));
}

void Session::close() {
    fail_all(Errc::closed, closed_error().text);
    // After close() no thread may copy to the application's memory, so close() waits for those that do.
    shm::fence();  // pairs with submit_staged()
    for (Request& request : requests_) std::lock_guard wait(request.mutex);
    for (uint32_t slot = 0; any_staged() && slot < control_.slots(); ++slot) end_stage(slot, 0, false);
    send_goodbye();
}

// Takes no lock, because it also runs while the process exits and other threads may hold locks.
void Session::send_goodbye() {
    // The message does not fit when doorbells fill the socket; the daemon reads this word at the session's
    // end.
    shm::store_release(control_.header().goodbye, 1u);
    connection_->send_goodbye();
    // A forked child may hold the socket open; shutdown() ends the connection all the same.
    connection_->shut_down();
    connection_->drop_unread();
}

void Session::fail_all(Errc code, const std::string& text) {
    {
        std::lock_guard lock(lost_mutex_);
        if (lost_ && code != Errc::closed) return;
        if (lost_ && lost_->code == Errc::closed) return;
        lost_ = Error{code, text, -1, -1, {}};
        lost_code_.store(static_cast<int32_t>(code), std::memory_order_release);
    }
    sleepers_.nudge();
}

std::optional<Error> Session::unusable() {
    if (lost_code_.load(std::memory_order_acquire) == 0) check_alive();
    if (lost_code_.load(std::memory_order_acquire) == 0) return std::nullopt;
    std::lock_guard lock(lost_mutex_);
    return lost_;
}

// [S8]: a thread that finds the word changed first wakes all other threads.
void Session::check_alive() {
    const uint32_t alive = shm::load_acquire(connection_->alive());
    if ((alive & NEXAR_ALIVE_TID_MASK) != 0 && !(alive & NEXAR_ALIVE_OWNER_DIED)) return;
    wake_all(&connection_->alive());
    if (alive & NEXAR_ALIVE_OWNER_DIED)
        return fail_all(Errc::daemon_lost, "the daemon ended without stopping in order");
    connection_->drain();
    std::string reason = connection_->refusal_text();
    const auto code = static_cast<int32_t>(shm::load_acquire(control_.header().closed_code));
    const bool misused = code == static_cast<int32_t>(Errc::protocol_error);
    if (reason.empty()) reason = "the daemon stopped, or closed this session";
    fail_all(misused ? Errc::protocol_error : Errc::daemon_lost, reason);
}

std::string Session::full_text(shm::SlotPool::For purpose) const {
    const uint32_t kept = purpose == shm::SlotPool::For::operation ? shm::SlotPool::kept_from_operations
                                                                   : shm::SlotPool::kept_from_openings;
    return "this session has " + std::to_string(control_.slots() - kept) +
           " requests, and no room for more with " + std::to_string(control_.slots()) +
           " slots: free some, or open the session with more slots";
}

Result<Slot> Session::take_slot(uint8_t kind, const Plan& plan, const Label& label) {
    using For = shm::SlotPool::For;
    const bool ends_at_once = kind > NEXAR_CMD_GROUP_OPEN || kind == NEXAR_OP_MESSAGE_FREE;
    const For purpose = ends_at_once                   ? For::command
                        : kind == NEXAR_CMD_GROUP_OPEN ? For::opening
                                                       : For::operation;
    std::optional<shm::SlotPool::Taken> taken;
    for (;;) {
        if (auto error = unusable()) return fail(*error);
        taken = pool_.try_take(purpose);
        if (taken) break;
        if (purpose != For::command) return fail(Errc::table_full, full_text(purpose));
        // Commands have the last slots, and the daemon completes commands at once, so one is free soon.
        check_tick_when_due();
        ::usleep(100);
    }
    const Slot slot{taken->slot, taken->generation};
    mark_pending(
        slot.index,
        slot.generation);  // before another thread can find the request and read the previous one's result
    Request& request = requests_[slot.index];
    std::lock_guard lock(request.mutex);
    request.finished = request.seen = false;
    request.kind.store(kind, std::memory_order_relaxed);
    request.holder.store(label.holder, std::memory_order_relaxed);
    request.label = label;
    request.plan = plan;
    request.plan.stage = {};
    request.staged = bool(plan.stage);
    // Release: who reads this run sees that the handle before it was freed [S21].
    request.run.store(slot.generation, std::memory_order_release);
    request.generation.store(slot.generation, std::memory_order_release);
    return slot;
}

Result<Slot> Session::submit(const nexar_shm_descriptor& descriptor, Plan plan, const Label& label,
                             const nexar_shm_payload* payload) {
    NEXAR_TRY(const Taken taken, take(descriptor, std::move(plan), label, payload));
    NEXAR_TRY_VOID(submit_taken(taken));
    return taken.slot;
}

Result<Taken> Session::take(const nexar_shm_descriptor& descriptor, Plan plan, const Label& label,
                            const nexar_shm_payload* payload) {
    auto slot = take_slot(descriptor.kind, plan, label);
    if (!slot) {
        release_plan(plan);
        return fail(slot.error());
    }
    shm::store_words(control_.slot(slot->index).descriptor, descriptor);
    if (payload) shm::store_words(control_.payload(slot->index), *payload);
    return Taken{*slot, plan.stage};
}

Result<void> Session::submit_taken(const Taken& taken) {
    if (push_taken(taken)) {
        ring_doorbell();
        if (taken.stage) after_staged(taken.slot);
        return {};
    }
    undo_submission(taken.slot);
    return fail(*unusable());
}

bool Session::push_taken(const Taken& taken) {
    operations_.fetch_add(1, std::memory_order_relaxed);
    return taken.stage ? push_staged(taken.slot, taken.stage) : push_submission(taken.slot);
}

// Ensures: when true, the daemon owns the slot. False: the session is unusable.
bool Session::push_submission(const Slot& slot) {
    const uint64_t run = run_of(slot);
    if (!push_quietly({slot.index, static_cast<uint32_t>(run), NEXAR_ENTRY_SUBMIT})) return false;
    requests_[slot.index].pushed.store(run, std::memory_order_release);
    return true;
}

// The ring has room for one submission and three other entries per slot, so a full ring means that the daemon
// does not run. The loop ends by the daemon's tick.
bool Session::push_quietly(const shm::Entry& entry, Time until) {
    while (!submission_.try_push(entry)) {
        check_tick_when_due();
        if (unusable() || now() >= until) return false;
        ring_doorbell();
        ::usleep(100);
    }
    return true;
}

bool Session::push(const shm::Entry& entry, Time until) {
    if (!push_quietly(entry, until)) return false;
    ring_doorbell();
    return true;
}

// Another thread may have polled the request after the session's end, and the application may have freed it.
void Session::undo_submission(const Slot& slot) {
    Request& request = requests_[slot.index];
    {
        std::lock_guard lock(request.mutex);
        if (request.generation.load(std::memory_order_relaxed) != slot.generation) return;
        if (request.persistent) return make_inactive(request, slot.index);
        if (!request.finished) release_plan(request.plan);
        request.plan = {};
        request.generation.store(0, std::memory_order_release);
        const bool opens = opens_group(request.kind.load(std::memory_order_relaxed));
        if (opens && request.label.group != 0) finish_opening(request.label.group, {}, false);
    }
    pool_.give_back(slot.index);
}

void Session::drop_taken(const Taken& taken) {
    if (!unusable()) shm::store_release(control_.slot(taken.slot.index).state, uint32_t{NEXAR_SLOT_FREE});
    undo_submission(taken.slot);
}

void Session::mark_pending(uint32_t slot, uint64_t run) {
    auto& shared = control_.slot(slot);
    shm::store_relaxed(shared.generation, static_cast<uint32_t>(run));
    // The previous operation's counts would be read as this one's progress [S12].
    shm::store_relaxed(shared.stage_filled, 0u);
    shm::store_relaxed(shared.stage_taken, 0u);
    shm::store_relaxed(shared.result.stage, 0u);
    shm::store_release(shared.state, pending_word(run));
}

uint64_t Session::run_of(const Slot& slot) const {
    const Request& request = requests_[slot.index];
    const uint64_t run = request.run.load(std::memory_order_acquire);
    return request.generation.load(std::memory_order_acquire) == slot.generation ? run : slot.generation;
}

uint32_t Session::pending_word(uint64_t run) {
    return NEXAR_SLOT_WORD(static_cast<uint32_t>(run), uint32_t{NEXAR_SLOT_SUBMITTED});
}

// [S7]: the client's side.
void Session::ring_doorbell() {
    shm::fence();
    if (shm::load_acquire(connection_->daemon().sleeping) == 0) return;
    const uint64_t sleep = shm::load_relaxed(connection_->daemon().sleep);
    // One thread rings, however many submit at once, so that few doorbells lie in the socket.
    if (rung_for_.exchange(sleep, std::memory_order_relaxed) == sleep) return;
    doorbells_.fetch_add(1, std::memory_order_relaxed);
    if (!connection_->ring()) rung_for_.store(0, std::memory_order_relaxed);
}

void Session::cancel(const Slot& slot) {
    if (is_completed(slot)) return;
    // One entry for each request is enough, so that cancels do not fill the ring.
    const uint64_t run = run_of(slot);
    // Another thread is about to start this persistent request: the cancel comes before that, and has no
    // effect. In the ring it would stand before the submission, and be lost.
    if (requests_[slot.index].pushed.load(std::memory_order_acquire) != run) return;
    if (requests_[slot.index].cancelled.exchange(run) == run) return;
    static_cast<void>(push({slot.index, static_cast<uint32_t>(run), NEXAR_ENTRY_CANCEL}));
}

bool Session::is_completed(const Slot& slot) {
    return shm::load_acquire(control_.slot(slot.index).state) != pending_word(slot) || unusable().has_value();
}

bool Session::may_have_handle(const Slot& slot) const {
    const Request& request = requests_[slot.index];
    // A handle of another generation is valid as a handle: test() reports that its request was freed.
    return request.generation.load(std::memory_order_acquire) != slot.generation ||
           request.holder.load(std::memory_order_relaxed) == Holder::handle;
}

Outcome Session::test(const Slot& slot) {
    progress_staged();
    if (!is_completed(slot)) check_tick_when_due();
    Request& request = requests_[slot.index];
    std::lock_guard lock(request.mutex);
    Outcome out;
    if (request.generation.load(std::memory_order_relaxed) != slot.generation) {
        out.freed = true;
        return out;
    }
    if (!request.finished && !is_completed(slot)) {
        label(request, slot, out);
        return out;
    }
    if (!request.finished) finish(request, slot);
    if (request.persistent) request.inactive.store(true, std::memory_order_release);
    return *request.outcome;
}

void Session::label(const Request& request, const Slot& slot, Outcome& outcome) const {
    outcome.kind = request.kind.load(std::memory_order_relaxed);
    outcome.group_name = request.label.group_name;
    outcome.called = request.label.called;
    nexar_completion& c = outcome.completion;
    c.request = handle_of(slot);
    c.user_data = request.label.user_data;
    // The application gets a group's handle when the group is open.
    if (!opens_group(outcome.kind)) c.group = reinterpret_cast<nexar_group*>(request.label.group);
    c.epoch = request.label.epoch;
}

void Session::finish(Request& request, const Slot& slot) {
    if (!request.outcome) request.outcome = std::make_unique<Outcome>();
    Outcome& outcome = *request.outcome;
    outcome = {};
    label(request, slot, outcome);
    nexar_completion& c = outcome.completion;
    auto& shared = control_.slot(slot.index);
    // A completion that was written before the daemon ended is valid.
    if (shm::load_acquire(shared.state) == pending_word(slot)) {
        outcome.error = unusable();
    } else {
        outcome.result = shared.result;  // [S4]
        const auto& detail = control_.detail(slot.index);
        if (outcome.result.status != NEXAR_OK) outcome.error = error_from(outcome.result.status, detail);
        if (outcome.result.has_detail && !outcome.error)
            outcome.answer = std::make_shared<const nexar_shm_detail>(detail);
        if (is_collective(outcome.kind)) c.sequence = outcome.result.sequence;
    }
    if (!outcome.error && (is_receive(outcome.kind) || is_probe(outcome.kind))) {
        c.bytes = outcome.result.bytes;
        c.tag = outcome.result.tag;
        c.source = outcome.result.source;
    }
    copy_out(request, outcome);
    c.status = outcome.error ? static_cast<int32_t>(outcome.error->code) : NEXAR_OK;
    if (opens_group(outcome.kind)) {
        if (request.label.group != 0) finish_opening(request.label.group, outcome.result, !outcome.error);
        if (!outcome.error) c.group = reinterpret_cast<nexar_group*>(request.label.group);
        if (!outcome.error) c.epoch = outcome.result.group_epoch;
    }
    request.finished = true;
    if (request.persistent) return;
    release_plan(request.plan);
    request.plan = {};
}

void Session::copy_out(Request& request, Outcome& outcome) {
    if (request.staged) {
        const auto index = static_cast<uint32_t>(&request - requests_.data());
        const uint64_t run = request.run.load(std::memory_order_relaxed);
        count_copy(end_stage(index, run, !outcome.error));
        // The operation succeeded, but close() ran before the last copies.
        if (!outcome.error && lost_code_.load() == static_cast<int32_t>(Errc::closed))
            outcome.error = unusable();
    }
    if (outcome.error || (!request.plan.copy_to && !request.plan.pieces)) return;
    // After close() the application's memory must not be written. (close() waits for a copy that has begun.)
    if (lost_code_.load(std::memory_order_acquire) == static_cast<int32_t>(Errc::closed)) {
        outcome.error = unusable();
        return;
    }
    const bool received = is_receive(request.kind.load(std::memory_order_relaxed));
    if (request.plan.pieces) return count_copy(copy_pieces(*request.plan.pieces, outcome.result.bytes));
    const uint64_t bytes = received ? std::min<uint64_t>(request.plan.copy_bytes, outcome.result.bytes)
                                    : request.plan.copy_bytes;
    std::memcpy(request.plan.copy_to, request.plan.copy_from, bytes);
    count_copy(bytes);
}

void Session::release_plan(const Plan& plan) {
    for (Region* region : plan.in_use)
        if (region) region->users.fetch_sub(1, std::memory_order_release);
    if (plan.pieces)
        for (Region* region : plan.pieces->in_use) region->users.fetch_sub(1, std::memory_order_release);
    // After the session is lost the daemon may still write to scratch memory; no new operation can use it,
    // because submit() fails.
    for (const ScratchBlock& block : plan.scratch)
        if (block) scratch_.give_back(block);
}

void Session::release_sides(Plan& plan) {
    for (ScratchBlock& block : std::span(plan.scratch).first<2>()) {
        if (block) scratch_.give_back(block);
        block = {};
    }
    plan.copy_to = nullptr;
    plan.fill_bytes = 0;
}

void Session::seen(const Slot& slot) {
    Request& request = requests_[slot.index];
    std::lock_guard lock(request.mutex);
    if (request.generation.load(std::memory_order_relaxed) == slot.generation) request.seen = true;
}

Result<void> Session::free(const Slot& slot, uint64_t* unseen) {
    Request& request = requests_[slot.index];
    {
        std::lock_guard lock(request.mutex);
        if (request.generation.load(std::memory_order_relaxed) != slot.generation)
            return fail(Errc::bad_handle, "the request was freed before, or never was one");
        if (!request.finished && !is_completed(slot))
            return fail(Errc::bad_state, "the request is pending: cancel it or wait for it first");
        if (!request.finished) finish(request, slot);
        const bool opened = opens_group(request.outcome->kind) && !request.outcome->error;
        if (opened && request.label.group != 0 && !request.seen && unseen) *unseen = request.label.group;
        if (request.persistent) end_persistent(request);
        request.generation.store(0, std::memory_order_release);
        // A lost session's daemon may still write to the slot; it is not marked free, and no operation uses
        // it.
        if (!unusable()) shm::store_release(control_.slot(slot.index).state, uint32_t{NEXAR_SLOT_FREE});
    }
    pool_.give_back(slot.index);
    return {};
}

Result<Outcome> Session::command(const nexar_shm_descriptor& descriptor, const nexar_shm_payload* payload,
                                 bool interruptible) {
    NEXAR_TRY(const Slot slot, submit(descriptor, {}, {}, payload));
    Outcome outcome = finish_command(slot, interruptible);
    if (outcome.error) return fail(*outcome.error);
    return outcome;
}

Outcome Session::finish_command(const Slot& slot, bool interruptible) {
    bool interrupted = false;
    while (wait(slot, never, interruptible && !interrupted) == Waited::signal) {
        interrupted = true;
        cancel(slot);
    }
    Outcome outcome = take_outcome(slot);
    if (interrupted && outcome.error && outcome.error->code == Errc::cancelled)
        outcome.error = Error{Errc::interrupted, "a signal arrived while waiting", -1, -1, {}};
    return outcome;
}

Outcome Session::finish_blocking(const Slot& slot) {
    wait(slot, never, false);
    return take_outcome(slot);
}

// The outcome of a call's own request. If another thread has freed the request, the call fails.
Outcome Session::take_outcome(const Slot& slot) {
    Outcome outcome = test(slot);
    if (outcome.freed || outcome.completion.status == NEXAR_PENDING) {
        outcome.error = Error{Errc::bad_handle, "another thread freed this call's request", -1, -1, {}};
        outcome.completion.status = NEXAR_ERR_BAD_HANDLE;
        return outcome;
    }
    static_cast<void>(free(slot));
    return outcome;
}

// ---- Polling ----

Result<int> Session::arm_fd() {
    NEXAR_TRY(const int fd, sleepers_.arm_fd());
    progress_staged();  // segments that were done before did not ring the doorbell
    std::lock_guard lock(poll_mutex_);
    if (completions_.behind() || !poll_backlog_.empty())
        sleepers_.notify_application();  // neither did these completions
    return fd;
}

size_t Session::poll(Slot* out, size_t capacity) {
    std::lock_guard lock(poll_mutex_);
    check_tick_when_due();
    sleepers_.begin_poll();
    progress_staged();
    size_t count = 0;
    const auto offer = [&](uint32_t index, uint32_t low_generation) {
        if (index >= requests_.size()) return;
        const Slot slot{index, requests_[index].generation.load(std::memory_order_acquire)};
        const uint64_t run = run_of(slot);
        if (slot.generation == 0 || static_cast<uint32_t>(run) != low_generation) return;  // freed already
        if (requests_[index].holder.load(std::memory_order_relaxed) != Holder::handle) return;
        // An entry may stand for a segment that is done [S12]; a completed request may have two entries.
        if (reported_[index] == run || is_inactive(slot) || !is_completed(slot)) return;
        reported_[index] = run;
        out[count++] = slot;
    };
    const auto take = [&] {
        while (count < capacity && !poll_backlog_.empty()) {
            const Slot slot = poll_backlog_.back();
            poll_backlog_.pop_back();
            offer(slot.index, static_cast<uint32_t>(slot.generation));
        }
        while (count < capacity) {
            const auto entry = completions_.try_pop();
            if (entry) {
                offer(entry->slot, entry->generation);
                continue;
            }
            if (!completions_.take_overrun()) return;
            // [S6]: scan the whole table; the next call returns the requests that do not fit.
            for (uint32_t i = 0; i < requests_.size(); ++i) {
                const Slot slot{i, requests_[i].generation.load(std::memory_order_acquire)};
                if (slot.generation != 0 && is_completed(slot)) poll_backlog_.push_back({i, run_of(slot)});
            }
            while (count < capacity && !poll_backlog_.empty()) {
                const Slot slot = poll_backlog_.back();
                poll_backlog_.pop_back();
                offer(slot.index, static_cast<uint32_t>(slot.generation));
            }
        }
    };
    take();
    sleepers_.rearm();
    progress_staged();
    take();
    sleepers_.end_poll();
    return count;
}

void Session::stats(nexar_session_stats& out) const {
    out.operations = operations_.load();
    out.bytes_copied = bytes_copied_.load();
    out.scratch_bytes = scratch_.held();
    out.regions = regions_.count();
    out.doorbells = doorbells_.load();
    out.waits_ready = waits_ready_.load();
    out.waits_spun = waits_spun_.load();
    out.waits_yielded = waits_yielded_.load();
    out.waits_slept = waits_slept_.load();
}

}  // namespace nexar::c
