// Service: the engine's interface for sessions, so that daemon/local and its tests need no engine. The node
// connects the two. engine::Clients (ports.hpp) is the other direction.
#pragma once

#include <string>

#include "engine/ports.hpp"

namespace nexar::engine {

// closed: in order. crashed: its process ended. given_up: its process runs and has given this daemon up, or
// taken memory away; none of its pending requests is executed, because it may use its memory for something
// else, or has none (docs/protocol/shm.md [S15], [S18]).
enum class SessionEnd : uint8_t { closed, crashed, given_up };

class Service {
  public:
    // An error means that the call was refused, and no completion follows. Every accepted call has exactly
    // one Clients::complete or group_opened, which may come inside this call.
    virtual Result<void> open(Time now, const OpenRequest& request) = 0;
    virtual Result<void> submit(Time now, const OpRequest& request) = 0;
    virtual void cancel(Time now, SessionId session, uint64_t ticket) = 0;
    // A staged operation: the inputs of the first `filled` segments are in their windows, the outputs of the
    // first `taken` were copied out. Neither count is trusted: one that shrinks or is too large is ignored.
    virtual void stage(Time now, SessionId session, uint64_t ticket, uint32_t filled, uint32_t taken) = 0;
    // The rank leaves the group; its pending requests end with CLOSED.
    virtual Result<void> free_group(Time now, SessionId session, const GroupId& group, uint32_t rank) = 0;
    // The rank ends the group as its crash would [F22]; its pending requests end with CLOSED.
    virtual Result<void> abort_group(Time now, SessionId session, const GroupId& group, uint32_t rank,
                                     const std::string& reason) = 0;
    // No completion follows for this session. Its regions stay pinned until its ops have ended.
    virtual void session_ended(Time now, SessionId session, SessionEnd how, const std::string& reason) = 0;
    // The daemon's table, for the regions that sessions register.
    virtual Regions& regions() = 0;

  protected:
    ~Service() = default;
};

}  // namespace nexar::engine
