// The process's handles of sessions, groups and requests. A forked child cannot use its parent's.
#pragma once

#include "errors.hpp"
#include "group.hpp"
#include "handles.hpp"
#include "session.hpp"

namespace nexar::c {

using Sessions = HandleTable<Session, 1024, 0x5>;
using Groups = HandleTable<Group, 4096, 0x7>;
using SessionPin = Sessions::Pin;
using GroupPin = Groups::Pin;

Sessions& sessions();
Groups& groups();

// Registers a handler: exit() sends GOODBYE for every open session, because a normal exit is not a crash;
// dlclose() closes the sessions. A forked child does neither for its parent's sessions.
void close_at_exit_or_unload();

// Differs in a forked child, also when the fork did not run pthread_atfork handlers.
uint32_t fork_epoch();

Result<SessionPin> session_of(const nexar_session* handle);
Result<SessionPin> session_of(uint64_t handle);
struct PinnedGroup {
    SessionPin session;
    GroupPin group;
};
Result<PinnedGroup> group_of(const nexar_group* handle);

struct PinnedRequest {
    SessionPin session;
    Slot slot;
};
Result<PinnedRequest> request_of(nexar_request request);

inline uint64_t number_of(const void* handle) {
    return reinterpret_cast<uintptr_t>(handle);
}

}  // namespace nexar::c
