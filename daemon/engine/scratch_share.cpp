#include "engine/scratch_share.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace nexar::engine {

ScratchShare::Waiter::Waiter(ScratchShare& share, TenantRef tenant, const void* owner)
    : share_(&share), tenant_(std::move(tenant)), owner_(owner) {
    share.waiting_[tenant_->number].push_back(this);
}

ScratchShare::Waiter::~Waiter() {
    share_->leave(*this);
}

bool ScratchShare::has_room(const Tenant& tenant) const {
    return tenant.has_room(Resource::scratch_bytes) &&
           (waiting_.empty() || !waiting_.contains(tenant.number));
}

void ScratchShare::leave(const Waiter& waiter) {
    const auto at = waiting_.find(waiter.tenant_->number);
    if (at == waiting_.end()) return;
    at->second.remove(const_cast<Waiter*>(&waiter));
    if (at->second.empty()) waiting_.erase(at);
}

bool ScratchShare::waits(const void* owner) const {
    return std::ranges::any_of(waiting_, [&](const auto& row) {
        return std::ranges::any_of(row.second, [&](const Waiter* w) { return w->owner_ == owner; });
    });
}

void ScratchShare::end(const void* owner, const Result<void>& result) {
    std::vector<Waiter*> over;
    for (const auto& [tenant, waiters] : waiting_)
        for (Waiter* w : waiters)
            if (w->owner_ == owner) over.push_back(w);
    for (Waiter* w : over) {
        leave(*w);
        w->op.finish(result);
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
        if (waiters.front()->tenant_->has_room(Resource::scratch_bytes)) first.push_back(waiters.front());
    for (Waiter* w : first) {
        leave(*w);
        w->op.finish();
    }
    if (!first.empty()) returned();
}

}  // namespace nexar::engine
