// The process's handles: which sessions, groups and requests there are, and whether a fork lies between.
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

// From now on exit() says goodbye for every session that is still open: a process that ends normally without
// closing its sessions has not crashed. And dlclose() closes them. (A fork's child says nothing for its
// parent's sessions.)
void close_at_exit_or_unload();

// Changes in a fork's child, however the fork was made.
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
