#include "engine/scratch_share.hpp"

#include <iterator>
#include <utility>
#include <vector>

namespace nexar::engine {

ScratchShare::Waiter::Waiter(ScratchShare& share, TenantRef tenant, const void* owner, uint32_t segment,
                             Priority priority)
    : share_(&share), tenant_(std::move(tenant)), owner_(owner), segment_(segment), priority_(priority) {
    std::list<Waiter*>& row = share.waiting_[tenant_->number];
    // From the back: what comes is seldom more urgent than what waits.
    auto before = row.end();
    while (before != row.begin() && (*std::prev(before))->priority_ > priority) --before;
    at_ = row.insert(before, this);
    share.by_owner_[{owner, segment}] = this;
}

ScratchShare::Waiter::~Waiter() {
    share_->leave(*this);
}

bool ScratchShare::has_room(const Tenant& tenant) const {
    return tenant.is_below_half(Resource::scratch_bytes) &&
           (waiting_.empty() || !waiting_.contains(tenant.number));
}

void ScratchShare::leave(Waiter& waiter) {
    if (by_owner_.erase({waiter.owner_, waiter.segment_}) == 0) return;
    const auto row = waiting_.find(waiter.tenant_->number);
    row->second.erase(waiter.at_);
    if (row->second.empty()) waiting_.erase(row);
}

ScratchShare::ByOwner::const_iterator ScratchShare::first_of(const void* owner) const {
    const auto at = by_owner_.lower_bound({owner, 0});
    return at != by_owner_.end() && at->first.first == owner ? at : by_owner_.end();
}

void ScratchShare::open(const void* owner, uint32_t segment) {
    const auto at = by_owner_.find({owner, segment});
    if (at == by_owner_.end()) return;
    Waiter& waiter = *at->second;
    leave(waiter);
    waiter.op.finish();
    returned();  // those behind it may have room
}

void ScratchShare::fail(const void* owner, const Error& error) {
    for (auto at = first_of(owner); at != by_owner_.end(); at = first_of(owner)) {
        Waiter& waiter = *at->second;
        leave(waiter);
        waiter.op.finish(std::unexpected(error));
        returned();
    }
}

void ScratchShare::returned() {
    if (waiting_.empty() || std::exchange(queued_, true)) return;
    executor_->push(this);
}

// One at a time: the next is judged by what this one has taken, so this runs again behind it.
void ScratchShare::run() {
    queued_ = false;
    std::vector<Waiter*> first;
    for (const auto& [tenant, waiters] : waiting_)
        if (waiters.front()->tenant_->is_below_half(Resource::scratch_bytes))
            first.push_back(waiters.front());
    for (Waiter* w : first) {
        leave(*w);
        w->op.finish();
    }
    if (!first.empty()) returned();
}

}  // namespace nexar::engine
