// Placement: puts payload bytes from a stream, as they arrive, where the transfer table says: into the posted
// receive, into a staging buffer, or into the unexpected-message buffer.
#pragma once

#include "link/stream_peer.hpp"

namespace nexar::link {

class Placement {
  public:
    explicit Placement(StreamState& state) : state_(&state) {}

    // One data frame, as its bytes arrive. Requires: stream.chunk is decoded and valid.
    void begin(StreamPeer& peer, Stream& stream);
    void feed(Stream& stream, Bytes bytes);
    // Where the rest of the payload belongs, or the beginning of it; empty: feed() takes it, as what belongs
    // to short runs.
    MutableBytes place(Stream& stream);
    void placed(Stream& stream, size_t bytes) { stream.got += static_cast<uint32_t>(bytes); }
    void end(StreamPeer& peer, Stream& stream);

    bool apply_early(Recv& recv, const EarlyChunk& early);  // false: the receive takes no further one

    void on_channel_lost(StreamPeer& peer);

  private:
    bool apply_whole(Recv& recv, const ChunkHeader& chunk, Bytes payload);  // false: it ended the receive

    StreamState* state_;
};

}  // namespace nexar::link
