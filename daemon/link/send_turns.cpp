// SendTurns: docs/protocol/tenants.md [N14].
#include "link/send_turns.hpp"

#include <algorithm>

namespace nexar::link {
namespace {

List<Send, &Send::ready>& list_of(const Send& send) {
    return send.tenant->ready[index_of(send.priority)];
}

// False: nothing of this tenant is ready.
bool choose(TenantSends& tenant) {
    const unsigned waiting = tenant.waiting();
    if (waiting != 0) tenant.next = tenant.priorities.next(waiting, priority_floor_of(tenant.cls));
    return waiting != 0;
}

}  // namespace

void SendTurns::add(Send& send) {
    TenantSends& tenant = *send.tenant;
    list_of(send).push_back(send);
    choose(tenant);
    if (tenant.turn.linked) return;
    tenants_.push_back(tenant);
    begin_turn();
}

void SendTurns::remove(Send& send) {
    if (!send.ready.linked) return;
    TenantSends& tenant = *send.tenant;
    list_of(send).erase(send);
    if (choose(tenant)) return;
    tenants_.erase(tenant);
    tenant.credit = std::min<int64_t>(tenant.credit, 0);  // it is not saved up, and a debt is not forgotten
    begin_turn();
}

void SendTurns::took(Send& send, uint32_t bytes) {
    TenantSends& tenant = *send.tenant;
    auto& list = list_of(send);
    list.erase(send);
    list.push_back(send);
    tenant.priorities.served(index_of(send.priority), uint64_t{bytes} + chunk_cost, tenant.waiting());
    choose(tenant);
    tenant.credit -= bytes + chunk_cost;
    if (tenant.credit > 0 || &tenant != tenants_.front()) return;
    to_back(tenant);
    begin_turn();
}

// The first tenant has credit: its turn gave it. One whose last chunk cost more than its turn gives misses
// the next.
void SendTurns::begin_turn() {
    while (!tenants_.empty() && tenants_.front()->credit <= 0) {
        TenantSends& first = *tenants_.front();
        first.credit += turn_cost_of(first.cls);
        if (first.credit <= 0) to_back(first);
    }
}

void SendTurns::to_back(TenantSends& tenant) {
    tenants_.erase(tenant);
    tenants_.push_back(tenant);
}

void SendTurns::check_invariants() const {
    for (const TenantSends* t = tenants_.front(); t != nullptr; t = tenants_.after(*t)) {
        NEXAR_CHECK(!t->ready[t->next].empty() && t->credit <= turn_cost_of(t->cls));
        NEXAR_CHECK(t->credit <= 0 || t == tenants_.front());
        for (size_t p = 0; p < priority_count; ++p)
            for (const Send* s = t->ready[p].front(); s != nullptr; s = t->ready[p].after(*s))
                NEXAR_CHECK(s->tenant == t && s->cls == t->cls && index_of(s->priority) == p);
    }
    NEXAR_CHECK(tenants_.empty() || tenants_.front()->credit > 0);
}

}  // namespace nexar::link
