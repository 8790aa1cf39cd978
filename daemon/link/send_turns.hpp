// SendTurns: the ready sends of one class to one peer, and which of them is next: tenants in turns, by bytes
// (docs/protocol/tenants.md [N14]); in a tenant's turn its priorities [K23], and in each of these its sends
// in turns, one chunk each. Nothing here allocates.
#pragma once

#include <cstdint>

#include "link/rows.hpp"

namespace nexar::link {

// What a chunk costs beside its bytes: its header, and the work that does not depend on its length.
constexpr int64_t chunk_cost = 512;

// What a tenant may send in one turn. A chunk of bulk; or as many small ones as take as long as a few of the
// largest.
constexpr int64_t turn_cost_of(Class cls) {
    return (cls == Class::bulk ? int64_t{chunk_bytes_max} : 16 * 1024) + chunk_cost;
}

// A less urgent send of a tenant that was passed over by so many bytes of its others has a chunk sent [K23].
constexpr uint64_t priority_floor_of(Class cls) {
    return 4 * static_cast<uint64_t>(turn_cost_of(cls));
}

class SendTurns {
  public:
    // The next one; null: none is ready.
    Send* front() const {
        const TenantSends* tenant = tenants_.front();
        return tenant == nullptr ? nullptr : tenant->ready[tenant->next].front();
    }
    // A tenant that had nothing ready is behind all others.
    void add(Send& send);
    void remove(Send& send);  // also one that is not there
    // A chunk of so many bytes was taken: the send goes behind its tenant's others, and the tenant pays.
    // Requires: it is there.
    void took(Send& send, uint32_t bytes);
    void check_invariants() const;  // for tests; walks all

  private:
    void begin_turn();
    void to_back(TenantSends& tenant);

    List<TenantSends, &TenantSends::turn> tenants_;  // by turn; those that have ready sends
};

}  // namespace nexar::link
