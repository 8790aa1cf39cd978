// Opening and freeing groups: from a GroupRequest to a group's handle, and its end.
#pragma once

#include <string_view>

#include "group.hpp"
#include "session.hpp"

namespace nexar::c {

// Submits the request to open a group. The group's handle exists at once; the application gets it when the
// request has completed with NEXAR_OK.
Result<Slot> start_opening(Session& session, const GroupRequest& wanted, bool blocking);
// A group's handle whose request is yet to be made. An error: this process has too many.
Result<uint64_t> reserve_group(const Session& session, const std::shared_ptr<const std::string>& name,
                               uint64_t flags);
void name_child(uint64_t group, bool has_colour, uint32_t colour);  // Requires: the group is reserved
// The request has completed: opens the group's handle, or closes it when it failed.
// Requires: called once for each request (Session::finish).
void finish_opening(uint64_t group, const nexar_shm_result& result, bool well);
// Leaves the group; the handle is closed only on success.
Result<void> free_group(uint64_t handle);
Result<void> abort_group(uint64_t handle, std::string_view reason);  // what is too long is cut
// Closes the handles of all groups of a closed session.
void close_groups_of(uint64_t session);

}  // namespace nexar::c
