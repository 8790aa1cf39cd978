// What sessions ask of the engine: engine::Engine's session functions as an interface, so that daemon/local
// and its tests need no engine. The node connects the two. The other direction is engine::Clients
// (ports.hpp).
#pragma once

#include <string>

#include "engine/ports.hpp"

namespace nexar::engine {

// Its process ended it in good order; died; or lives, and goes on without this daemon: its memory has other
// uses by now, so nothing that it handed over is carried out (docs/protocol/shm.md [S15]).
enum class SessionEnd : uint8_t { closed, crashed, given_up };

class Service {
  public:
    // An error means refused: no completion follows. Every accepted call gets exactly one Clients::complete
    // or group_opened, possibly from inside this call.
    virtual Result<void> open(Time now, const OpenRequest& request) = 0;
    virtual Result<void> submit(Time now, const OpRequest& request) = 0;
    virtual void cancel(Time now, SessionId session, uint64_t ticket) = 0;
    // A staged operation: the inputs of the first `filled` segments stand in their windows, the outputs of
    // the first `taken` were copied out. Neither is trusted; what shrinks or is too much changes nothing.
    virtual void stage(Time now, SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) = 0;
    // The rank leaves; what it has pending ends with CLOSED.
    virtual Result<void> free_group(Time now, SessionId session, const GroupId& group, uint32_t rank) = 0;
    // No completion follows for this session. Its buffers' keepalives are released as its ops end.
    virtual void session_ended(Time now, SessionId session, SessionEnd how, const std::string& reason) = 0;

  protected:
    ~Service() = default;
};

}  // namespace nexar::engine
