// SendTurns: docs/protocol/tenants.md [N14].
#include "link/send_turns.hpp"

#include <algorithm>

namespace nexar::link {

void SendTurns::add(Send& send) {
    TenantSends& tenant = *send.tenant;
    tenant.ready.push_back(send);
    if (tenant.turn.linked) return;
    tenants_.push_back(tenant);
    begin_turn();
}

void SendTurns::remove(Send& send) {
    if (!send.ready.linked) return;
    TenantSends& tenant = *send.tenant;
    tenant.ready.erase(send);
    if (!tenant.ready.empty()) return;
    tenants_.erase(tenant);
    tenant.credit = std::min<int64_t>(tenant.credit, 0);  // it is not saved up, and a debt is not forgotten
    begin_turn();
}

void SendTurns::took(Send& send, uint32_t bytes) {
    TenantSends& tenant = *send.tenant;
    tenant.ready.erase(send);
    tenant.ready.push_back(send);
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
        NEXAR_CHECK(!t->ready.empty() && t->credit <= turn_cost_of(t->cls));
        NEXAR_CHECK(t->credit <= 0 || t == tenants_.front());
        for (const Send* s = t->ready.front(); s != nullptr; s = t->ready.after(*s))
            NEXAR_CHECK(s->tenant == t && s->cls == t->cls);
    }
    NEXAR_CHECK(tenants_.empty() || tenants_.front()->credit > 0);
}

}  // namespace nexar::link
