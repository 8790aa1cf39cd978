// See batch.hpp.
#include "batch.hpp"

namespace nexar::c {

namespace {

// A number of this thread that no other one ever has.
uint64_t this_thread() {
    static std::atomic<uint64_t> last{0};
    thread_local uint64_t mine = 0;
    if (mine == 0) mine = last.fetch_add(1) + 1;
    return mine;
}

}  // namespace

Batch::Batch() : thread_(this_thread()) {
    all_.reserve(64);
}

Batch::~Batch() {
    for (GroupPin& group : turns_) group->in_collective.store(false, std::memory_order_release);
}

bool Batch::has_turn(const Group& group) const {
    for (const GroupPin& mine : turns_)
        if (&*mine == &group) return true;
    return false;
}

void Batch::keep_turn(GroupPin group) {
    turns_.push_back(std::move(group));
}

Batches::Batches() = default;
Batches::~Batches() = default;

Batch* Batches::of_this_thread() {
    std::lock_guard lock(mutex_);
    for (const auto& batch : all_)
        if (batch->thread() == this_thread()) return batch.get();
    return nullptr;
}

Batch& Batches::begin() {
    std::lock_guard lock(mutex_);
    all_.push_back(std::make_unique<Batch>());
    count_.fetch_add(1, std::memory_order_relaxed);
    return *all_.back();
}

void Batches::end(Batch& batch) {
    std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const auto& one) { return one.get() == &batch; });
    count_.fetch_sub(1, std::memory_order_relaxed);
}

Result<void> hand_over(PinnedGroup& pinned, Batch* batch, Turn& turn, const Taken& taken) {
    if (!batch) return pinned.session->submit_taken(taken);
    pinned.session->hold(*batch, taken);
    if (turn.give_away()) batch->keep_turn(std::move(pinned.group));
    return {};
}

Result<void> may_block(Session& session) {
    if (!session.batch()) return {};
    return fail(Errc::bad_state,
                "this thread is between nexar_ops_begin and nexar_ops_end, where nothing can be waited for");
}

void Session::hold(Batch& batch, const Taken& taken) {
    requests_[taken.slot.index].held.store(true, std::memory_order_release);
    batch.add(taken);
}

bool Session::is_held(const Slot& slot) const {
    const Request& request = requests_[slot.index];
    return request.held.load(std::memory_order_acquire) &&
           request.generation.load(std::memory_order_acquire) == slot.generation;
}

// The entries first, and then one look whether the daemon sleeps: [S7] holds for the last entry, and so for
// all.
Result<void> Session::submit_all(std::span<const Taken> all) {
    bool submitted = true, staged = false;
    for (const Taken& taken : all) {
        submitted = submitted && push_taken(taken);
        staged = staged || bool(taken.stage);
        requests_[taken.slot.index].held.store(false, std::memory_order_release);
    }
    if (!submitted) return fail(*unusable());
    ring_doorbell();
    for (const Taken& taken : all)
        if (staged && taken.stage) after_staged(taken.slot);
    return {};
}

Result<void> Session::submit_batch(Batch& batch) {
    return submit_all(batch.all());
}

void Session::drop_batch(Batch& batch) {
    for (const Taken& taken : batch.all()) {
        requests_[taken.slot.index].held.store(false, std::memory_order_release);
        drop_taken(taken);
    }
}

}  // namespace nexar::c
