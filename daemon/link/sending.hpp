// What leaves: sends and their chunks' states [W6], strict priority with a floor, fair turns inside a class.
#pragma once

#include "link/shared.hpp"

namespace nexar::link {

class Sending {
  public:
    explicit Sending(Shared& shared) : shared_(&shared) {}

    Send* post(SendSpec&& spec, uint64_t handle);  // nullptr: it ended at once
    void mark_ready(Send& send, uint32_t chunk);   // a forwarded chunk was applied
    void fail(Send& send);

    void on_grant(Peer& peer, const GrantEntry& entry, Bytes words);
    // Return the rule that was broken, or nullptr.
    const char* on_ack(Peer& peer, const RangeEntry& range);
    const char* on_nack(Peer& peer, const RangeEntry& range);

    void on_channel_lost(Peer& peer);
    void on_channel(Peer& peer);  // a new one: queue again, ask
    void pump(Peer& peer);        // writes messages and chunks as far as there is room
    void write_message(Peer& peer, Bytes message);
    static const ControlLog::Entry* next_entry(const Peer& peer);  // null: nothing may be written now
    void write_entries(Peer& peer);  // of the control log, as far as there is room

  private:
    void update_ready(Send& send);
    void send_again(Send& send);
    void acknowledge(Send& send, uint32_t word, uint64_t bits);
    void complete_if_done(Send& send);
    void release(Send& send);
    bool accept_grant(Send& send, const GrantEntry& entry);
    size_t next_bytes(const Peer& peer, Class cls) const;  // of its next frame; 0: has nothing to send
    bool pick(Peer& peer, Class& out) const;
    void write_next(Peer& peer, Class cls);
    void write_entry(Peer& peer);
    void write_chunk(Peer& peer, Send& send);

    Shared* shared_;
    std::vector<Bytes> parts_;
};

}  // namespace nexar::link
