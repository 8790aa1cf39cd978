// What leaves on the streams: chunks in strict priority with a floor and in fair turns inside a class,
// messages, entries of the control log, and the lists of acks, nacks, asks and grants (stream_lists.cpp).
#pragma once

#include "link/stream_peer.hpp"

namespace nexar::link {

class StreamWriter {
  public:
    explicit StreamWriter(StreamState& state) : state_(&state) {}

    void pump(StreamPeer& peer);  // writes messages and chunks as far as there is room
    void write_message(StreamPeer& peer, Bytes message);
    static const ControlLog::Entry* next_entry(const StreamPeer& peer);  // null: nothing may be written now
    void write_entries(StreamPeer& peer);  // of the control log, as far as there is room
    void write_resume(StreamPeer& peer);   // if it is due
    void write_applied(StreamPeer& peer);  // if it is worth it
    void write_lists(StreamPeer& peer);    // acks, nacks, asks, grants
    void write_full_lists(StreamPeer& peer) {
        if (peer.transfers->due.is_full()) write_lists(peer);
    }
    void write_confirmation(StreamPeer& peer);  // if too many acks are not confirmed

    void on_channel_lost(StreamPeer& peer);

  private:
    void put(StreamPeer& peer, Class cls, std::span<const Bytes> frame, size_t payload = 0);
    size_t next_bytes(const StreamPeer& peer, Class cls) const;  // of its next frame; 0: has nothing to send
    static Class next_stream(StreamPeer& peer, Class cls, size_t bytes);
    bool pick(StreamPeer& peer, Class& out) const;
    void write_next(StreamPeer& peer, Class cls);
    void write_entry(StreamPeer& peer);
    void write_chunk(StreamPeer& peer, Send& send);
    void write_ranges(StreamPeer& peer, FrameKind kind, const std::vector<ChunkRange>& ranges,
                      uint32_t last_flags);
    void write_grants(StreamPeer& peer);
    void add_grant(StreamPeer& peer, const Grant& grant, uint32_t& count);
    void write_grant_frame(StreamPeer& peer, uint32_t& count);

    StreamState* state_;
    std::vector<Bytes> parts_;            // of the frame that is written
    std::vector<RangeEntry> entries_;     // the same
    std::vector<std::byte> grant_bytes_;  // the same
};

}  // namespace nexar::link
