// The sending half of the transfer table: posted sends and the states of their chunks [W6]. A carrier takes
// chunks of sends that are ready, and reports what the receiver granted, acknowledged or refused.
#pragma once

#include "link/table_state.hpp"

namespace nexar::link {

class SendTable {
  public:
    explicit SendTable(TableState& state) : state_(&state) {}

    Send* post(PeerTransfers& peer, SendSpec&& spec, uint64_t handle);  // nullptr: it ended at once
    void mark_ready(Send& send, uint32_t chunk);                        // a forwarded chunk was applied
    void fail(Send& send);

    // Requires: the send is in Due::ready. The chunk is in flight, the send's tenant pays for it, and the
    // send takes its next turn behind that tenant's other ready ones of its class [N14].
    uint32_t take(Send& send);
    static uint32_t next_payload(const Send& send) { return send.payload_of(send.queued.first()); }

    // From the receiver. Those that return text return the rule that was broken, or nullptr [W9].
    void on_grant(PeerTransfers& peer, const Grant& grant);  // Requires: its shape was judged
    const char* on_ack(PeerTransfers& peer, const ChunkRange& range);
    const char* on_nack(PeerTransfers& peer, const ChunkRange& range);

    void begin_generation(PeerTransfers& peer);  // ask about what was in flight
    void end_generation(PeerTransfers& peer);    // queue it again

    void check_invariants(const PeerTransfers& peer) const;  // for tests; walks all sends

  private:
    static bool may_send(const Send& send);
    void update_ready(Send& send);
    void send_again(Send& send);
    void acknowledge(Send& send, uint32_t word, uint64_t bits);
    void complete_if_done(Send& send);
    void release(Send& send);
    TenantSends& join_tenant(PeerTransfers& peer, const TenantKey& key);  // for one send more
    void leave_tenant(PeerTransfers& peer, TenantSends& row);
    bool accept_grant(Send& send, const EarlyGrant& grant);

    TableState* state_;
};

}  // namespace nexar::link
