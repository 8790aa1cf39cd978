// From a request to open a group to the group's handle, and back again.
#pragma once

#include "group.hpp"
#include "session.hpp"

namespace nexar::c {

// Takes part in the meeting. The group's handle exists from now on, but is nobody's until the request has
// ended well.
Result<Slot> start_opening(Session& session, const GroupRequest& wanted, bool blocking);
// The daemon has answered: the handle becomes good, or goes. Called once, by whoever sees the end first.
void finish_opening(uint64_t group, const nexar_shm_result& result, bool well);
// Leaves the group; the handle is closed only on success.
Result<void> free_group(uint64_t handle);
// Of a session that was closed.
void close_groups_of(uint64_t session);

}  // namespace nexar::c
