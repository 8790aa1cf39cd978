// Cuts incoming class streams into frames and reports what they state to the transfer table. Every number in
// a frame is judged here, before use [W9].
#pragma once

#include "link/placement.hpp"
#include "link/stream_writer.hpp"

namespace nexar::link {

class StreamReader {
  public:
    StreamReader(StreamState& state, Placement& placement, StreamWriter& writer)
        : state_(&state), placement_(&placement), writer_(&writer) {}

    // Returns the rule that was broken, or nullptr. After that the stream is not to be used again.
    const char* feed(StreamPeer& peer, Class cls, Bytes bytes);
    // Instead of feed(), where the stream is in a payload that has a place (Mesh::place()).
    MutableBytes place(StreamPeer& peer, Class cls);
    void placed(StreamPeer& peer, Class cls, size_t bytes);

  private:
    const char* step(StreamPeer& peer, Class cls, Stream& stream, Bytes& bytes);
    const char* on_start(StreamPeer& peer, Class cls, Stream& stream);
    const char* on_body(StreamPeer& peer, Stream& stream, Bytes body);
    void took(StreamPeer& peer, Class cls, Stream& stream, size_t bytes);
    void end_frame(StreamPeer& peer, Class cls, Stream& stream);
    const char* on_applied(StreamPeer& peer, uint64_t number);
    // `message`: what follows its header, of an entry.
    const char* on_log_frame(StreamPeer& peer, const FrameStart& start, Bytes body, Bytes message);
    const char* on_list(StreamPeer& peer, const ListFrame& frame, Bytes entries);
    const char* on_grants(StreamPeer& peer, const ListFrame& frame, Bytes entries);
    const char* on_body_bytes(StreamPeer& peer, Class cls, Stream& stream, Bytes& bytes);
    const char* broken_identity(StreamPeer& peer, const FrameStart& start);

    StreamState* state_;
    Placement* placement_;
    StreamWriter* writer_;
    std::vector<uint64_t> words_;  // of the grant that is read
};

}  // namespace nexar::link
