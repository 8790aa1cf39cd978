// Cuts incoming class streams into frames and hands them on. Every number in a frame is judged here, before
// use [W9].
#pragma once

#include "link/receiving.hpp"
#include "link/sending.hpp"
#include "link/shared.hpp"

namespace nexar::link {

class Inbound {
  public:
    Inbound(Shared& shared, Sending& sending, Receiving& receiving)
        : shared_(&shared), sending_(&sending), receiving_(&receiving) {}

    // Returns the rule that was broken, or nullptr. After that the stream is not to be used again.
    const char* feed(Peer& peer, Class cls, Bytes bytes);

  private:
    const char* step(Peer& peer, Class cls, Stream& stream, Bytes& bytes);
    const char* on_start(Peer& peer, Class cls, Stream& stream);
    const char* on_body(Peer& peer, Stream& stream, Bytes body);
    const char* on_applied(Peer& peer, uint64_t number);
    // `message`: what follows its header, of an entry.
    const char* on_log_frame(Peer& peer, const FrameStart& start, Bytes body, Bytes message);
    const char* on_list(Peer& peer, const ListFrame& frame, Bytes entries);
    const char* on_grants(Peer& peer, const ListFrame& frame, Bytes entries);
    const char* on_body_bytes(Peer& peer, Stream& stream, Bytes& bytes);
    const char* broken_identity(Peer& peer, const FrameStart& start);

    Shared* shared_;
    Sending* sending_;
    Receiving* receiving_;
};

}  // namespace nexar::link
