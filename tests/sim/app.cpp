// See app.hpp.
#include "app.hpp"

#include <algorithm>
#include <cstring>

#include "shm/words.hpp"
#include "support/add_region.hpp"
#include "support/regions.hpp"

namespace nexar::sim {

namespace {

// As the library writes it: what a kind does not use is 0 [S14].
nexar_shm_descriptor as_library(nexar_shm_descriptor d) {
    const OpRow* row = find_operation(d.kind);
    if (row == nullptr) return d;
    d.priority = NEXAR_SHM_PRIORITY_DEFAULT;
    d.epoch = 1;
    if (!row->reduces) d.op = 0;
    if (!row->rooted && row->collective) d.peer = 0;
    if (!row->has_elements) d.dtype = 0, d.count = 0;
    return d;
}

}  // namespace

App::App(Cluster& cluster, uint32_t host, const AppShape& shape)
    : cluster_(cluster),
      host_(*cluster.hosts[host]),
      shape_(shape),
      id_(cluster.new_session()),
      control_(shape.slots),
      view_(control_.view()),
      pool_(shape.slots),
      submission_(view_),
      completion_(view_) {
    const local::SessionIdentity identity{id_, host_.tenants.of("", 1000),
                                          4000 + static_cast<uint32_t>(id_.value), host_.id};
    local::Waker& waker = *this;
    core_ =
        std::make_unique<local::SessionCore>(identity, view_, *host_.engine, waker, local::SessionLimits{});
    core_->sabotage.lose_a_wakeup = shape.lose_a_wakeup;
    host_.cores[id_.value] = core_.get();
    if (shape_.sleeps == Sleeps::on_doorbell) view_.header().bell_wanted = 1;
    if (shape_.sleeps == Sleeps::on_ring) look_at_ring();
}

App::~App() {
    host_.cores.erase(id_.value);
}

void App::later(Duration most, std::function<void()> act) {
    cluster_.clock.after(Duration(1) + cluster_.clock.some(most), std::move(act));
}

// ---- The application ----

std::optional<App::Handle> App::take(bool command, Then then) {
    const auto taken = pool_.try_take(command ? shm::SlotPool::For::command : shm::SlotPool::For::operation);
    if (!taken) return std::nullopt;
    const Handle handle{taken->slot, static_cast<uint32_t>(taken->generation)};
    pending_[handle.slot] = {handle.generation, std::move(then), false, {}, false};
    if (!deaf_) ++cluster_.to_be_submitted;
    return handle;
}

void App::push(Handle handle, uint8_t kind) {
    auto& slot = view_.slot(handle.slot);
    slot.generation = handle.generation;
    shm::store_release(slot.state, NEXAR_SLOT_WORD(handle.generation, uint32_t{NEXAR_SLOT_SUBMITTED}));
    // A thread that finds the ring full sleeps and tries again.
    if (submission_.try_push({handle.slot, handle.generation, kind}))
        call_daemon();
    else
        later(50us, [this, handle, kind] {
            if (!dead_ && core_ && pending_.contains(handle.slot)) push(handle, kind);
        });
    if (shape_.sleeps == Sleeps::on_slot) later(shape_.wake_delay, [this, s = handle.slot] { look(s); });
}

std::optional<App::Handle> App::start(const nexar_shm_descriptor& words, Then then,
                                      std::shared_ptr<StagedMemory> staged) {
    if (!core_) return std::nullopt;
    const auto handle = take(words.kind >= NEXAR_OP_KINDS, std::move(then));
    if (!handle) return std::nullopt;
    auto& slot = view_.slot(handle->slot);
    slot.descriptor = as_library(words);
    slot.stage_filled = slot.stage_taken = slot.result.stage = 0;
    pending_[handle->slot].staged = std::move(staged);
    push(*handle, NEXAR_ENTRY_SUBMIT);
    move_soon(handle->slot);
    return handle;
}

std::optional<App::Handle> App::open(const std::string& name, uint32_t size, uint32_t rank, Then then,
                                     const std::string& secret, Duration timeout) {
    if (!core_) return std::nullopt;
    const auto handle = take(true, std::move(then));
    if (!handle) return std::nullopt;
    nexar_shm_group_open& ask = view_.payload(handle->slot).group_open;
    ask = {};
    ask.size = size;
    ask.rank = rank;
    ask.name_bytes = static_cast<uint32_t>(name.size());
    ask.secret_bytes = static_cast<uint32_t>(secret.size());
    ask.timeout_ns = timeout.count();
    std::memcpy(ask.name, name.data(), std::min(name.size(), sizeof ask.name));
    std::memcpy(ask.secret, secret.data(), std::min(secret.size(), sizeof ask.secret));
    nexar_shm_descriptor words{};
    words.kind = NEXAR_CMD_GROUP_OPEN;
    view_.slot(handle->slot).descriptor = words;
    push(*handle, NEXAR_ENTRY_SUBMIT);
    return handle;
}

// Over the socket, which is not the ring: it may overtake entries or be overtaken.
uint32_t App::add_region(std::shared_ptr<std::vector<std::byte>> memory, Then then) {
    const uint32_t region = next_region_++;
    const auto handle = take(true, std::move(then));
    if (!handle) return 0;
    auto& slot = view_.slot(handle->slot);
    shm::store_release(slot.state, NEXAR_SLOT_WORD(handle->generation, uint32_t{NEXAR_SLOT_SUBMITTED}));
    later(shape_.turn_delay, [this, h = *handle, region, memory] {
        if (!core_ || host_.dead) return;
        nexar::test::add_region(*core_, h.slot, h.generation, region, memory->size(), [&] {
            return nexar::test::memory_of_test(memory->data(), memory->size(), memory);
        });
    });
    if (shape_.sleeps == Sleeps::on_slot) later(shape_.wake_delay, [this, s = handle->slot] { look(s); });
    return region;
}

bool App::cancel(Handle handle) {
    const bool pushed = submission_.try_push({handle.slot, handle.generation, NEXAR_ENTRY_CANCEL});
    if (pushed)
        call_daemon();
    else
        ++cancels_refused;
    return pushed;
}

void App::go_deaf() {
    if (deaf_) return;
    deaf_ = true;
    cluster_.to_be_submitted -= static_cast<int>(pending_.size());
}

void App::scribble(size_t count) {
    Random& random = cluster_.clock.random;
    auto words = control_.words();
    auto ring = view_.submission();
    for (size_t i = 0; i < count; ++i) {
        uint64_t value = random.next() >> random.below(64);
        if (random.one_in(3)) {
            words[random.below(words.size())] = value;
            continue;
        }
        // Where the daemon looks: entries of any turn, descriptors, states.
        const auto slot = static_cast<uint32_t>(random.below(view_.slots()));
        const auto turn = static_cast<uint8_t>(random.one_in(4) ? random.below(8) : 1);
        const shm::Entry entry{slot, static_cast<uint32_t>(random.below(8)),
                               static_cast<uint8_t>(random.below(5))};
        ring[random.below(ring.size())] = entry.pack(turn);
        auto* descriptor = reinterpret_cast<uint64_t*>(&view_.slot(slot).descriptor);
        descriptor[random.below(sizeof(nexar_shm_descriptor) / 8)] = value;
        view_.slot(slot).state = NEXAR_SLOT_WORD(entry.generation, uint32_t{NEXAR_SLOT_SUBMITTED});
    }
    call_daemon();
}

// ---- Its sleeping threads [S5] ----

bool App::finish(uint32_t index) {
    const auto at = pending_.find(index);
    if (at == pending_.end()) return false;
    auto& slot = view_.slot(index);
    const bool done =
        shm::load_acquire(slot.state) == NEXAR_SLOT_WORD(at->second.generation, uint32_t{NEXAR_SLOT_DONE});
    if (!done && core_) return false;
    Done answer;
    if (done) {
        answer.result = slot.result;
        answer.status = slot.result.status;
        const auto& detail = view_.detail(index);
        if (answer.result.has_detail != 0)
            answer.text.assign(detail.text, std::min<size_t>(detail.text_bytes, sizeof detail.text));
    } else {  // the session is over
        answer.status = static_cast<int32_t>(Errc::daemon_lost);
        answer.text = why_;
    }
    if (done && answer.status == 0 && at->second.staged) at->second.staged->take_rest();
    const Then then = std::move(at->second.then);
    pending_.erase(at);
    slot.state = NEXAR_SLOT_FREE;
    pool_.give_back(index);
    --cluster_.to_be_submitted;
    if (then) then(answer);
    return true;
}

void App::look(uint32_t index) {
    const auto at = pending_.find(index);
    if (at == pending_.end() || deaf_ || dead_ || at->second.asleep) return;
    auto& waiters = view_.slot(index).waiters;
    shm::store_relaxed(waiters, 1u);
    shm::fence();
    if (finish(index)) return shm::store_relaxed(waiters, 0u);
    at->second.asleep = true;
    move_soon(index);
}

void App::look_at_all() {
    if (deaf_ || dead_) return;
    std::vector<uint32_t> all;
    for (const auto& [slot, call] : pending_) all.push_back(slot);
    for (const uint32_t slot : all)
        if (!finish(slot)) move_soon(slot);
}

void App::look_at_ring() {
    if (deaf_ || dead_) return;
    shm::store_relaxed(view_.header().completion_waiters, 1u);
    shm::fence();
    bool any = false;
    while (const auto entry = completion_.try_pop()) {
        any = true;
        if (entry->slot < view_.slots() && !finish(entry->slot)) move_soon(entry->slot);
    }
    if (completion_.take_overrun() || !core_) look_at_all();
    ring_asleep_ = !any && core_;
    if (any) later(shape_.wake_delay, [this] { look_at_ring(); });
}

// ---- Bytes of staged calls [S12] ----

void App::move_soon(uint32_t index) {
    const auto at = pending_.find(index);
    if (at == pending_.end() || !at->second.staged || std::exchange(at->second.move_due, true)) return;
    later(shape_.wake_delay, [this, index, generation = at->second.generation] {
        const auto again = pending_.find(index);
        if (again == pending_.end() || again->second.generation != generation) return;
        again->second.move_due = false;
        move(index);
    });
}

void App::move(uint32_t index) {
    const auto at = pending_.find(index);
    if (at == pending_.end() || deaf_ || dead_ || !moves_ || !core_) return;
    auto& slot = view_.slot(index);
    const Handle handle{index, at->second.generation};
    if (shm::load_acquire(slot.state) != NEXAR_SLOT_WORD(handle.generation, uint32_t{NEXAR_SLOT_SUBMITTED}))
        return;
    StagedMemory& staged = *at->second.staged;
    const uint32_t done = shm::load_acquire(slot.result.stage);
    if (staged.move(done)) {
        shm::store_release(slot.stage_filled, staged.filled);
        shm::store_release(slot.stage_taken, staged.taken);
        say_moved(handle);
    }
    if (staged.can_move(done)) move_soon(index);
}

void App::say_moved(Handle handle) {
    if (submission_.try_push({handle.slot, handle.generation, NEXAR_ENTRY_STAGE})) return call_daemon();
    later(50us, [this, handle] {
        if (!dead_ && core_) say_moved(handle);
    });
}

void App::move_again() {
    moves_ = true;
    for (const auto& [slot, call] : pending_) move_soon(slot);
}

void App::lie(Handle handle, uint32_t filled, uint32_t taken) {
    auto& slot = view_.slot(handle.slot);
    shm::store_release(slot.stage_filled, filled);
    shm::store_release(slot.stage_taken, taken);
    say_moved(handle);
}

void App::wake_all(uint32_t* word) {
    if (word == &view_.header().completion_tail) {
        if (std::exchange(ring_asleep_, false)) later(shape_.wake_delay, [this] { look_at_ring(); });
        return;
    }
    for (auto& [slot, call] : pending_)
        if (&view_.slot(slot).state == word && std::exchange(call.asleep, false))
            later(shape_.wake_delay, [this, s = slot] { look(s); });
}

void App::ring_doorbell() {
    later(shape_.wake_delay, [this] { look_at_all(); });
}

// ---- The daemon's shell around the core (local::Session, local::Server) ----

void App::call_daemon() {
    if (!core_ || std::exchange(turn_due_, true)) return;
    later(shape_.turn_delay, [this] {
        turn_due_ = false;
        turn();
    });
}

void App::turn() {
    if (!core_ || host_.dead) return;
    core_->drain(cluster_.clock.now());
    core_->check_invariants();
    if (core_->broken()) return end(true, core_->broken()->text, false);
    if (core_->has_work()) call_daemon();
    host_.after_input();
}

void App::end(bool crashed, const std::string& why, bool process_too) {
    if (!core_) return;
    const Time now = cluster_.clock.now();
    // What was handed over before the end is carried out (Session::drain_rest).
    for (size_t left = nexar_shm_submission_entries(view_.slots()); process_too && left > 0;) {
        const size_t taken = core_->drain(now);
        if (taken == 0) break;
        left -= std::min(left, taken);
    }
    core_->break_off({Errc::peer_lost, why, -1, -1, {}});
    why_ = why;
    host_.cores.erase(id_.value);
    core_.reset();
    host_.engine->session_ended(now, id_, crashed ? engine::SessionEnd::crashed : engine::SessionEnd::closed,
                                why_);  // `why` may have been the core's own text
    host_.after_input();
    if (process_too) {
        if (!deaf_) cluster_.to_be_submitted -= static_cast<int>(pending_.size());
        pending_.clear();
        dead_ = true;
    } else {
        later(shape_.wake_delay, [this] { look_at_all(); });  // the alive word wakes everybody [S8]
    }
}

}  // namespace nexar::sim
