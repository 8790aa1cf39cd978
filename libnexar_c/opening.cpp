// See opening.hpp.
#include "opening.hpp"

#include "tables.hpp"

namespace nexar::c {

Result<Slot> start_opening(Session& session, const GroupRequest& wanted, bool blocking) {
    if (auto error = session.unusable()) return fail(*error);
    auto group = std::make_unique<Group>();
    group->session = session.handle;
    group->fork_epoch = session.fork_epoch;
    group->name = std::make_shared<const std::string>(wanted.name);
    Group* raw = group.get();
    Label label{wanted.user_data, 0, 0, blocking ? Holder::call : Holder::handle, group->name};
    label.group = groups().insert(std::move(group), [](uint32_t) {});
    if (label.group == 0)
        return fail(Errc::table_full, "this process has " + std::to_string(Groups::capacity_max) +
                                          " groups; no more are possible: free one");
    raw->handle = label.group;  // no other thread knows the handle yet
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_OPEN;
    const nexar_shm_group_open payload = payload_of(wanted);
    auto slot = session.submit(d, {}, label, &payload);
    if (!slot) finish_opening(label.group, {}, false);
    return slot;
}

void finish_opening(uint64_t handle, const nexar_shm_result& result, bool well) {
    GroupPin pin;
    if (!well) {
        groups().close(handle, pin);
        return;
    }
    if (groups().pin(handle, pin) != Groups::Found::open) return;  // the session was closed meanwhile
    pin->membership = result.group;
    pin->rank = result.rank;
    pin->size = result.size;
    pin->epoch = result.group_epoch;
    pin->segment_bytes = result.stage;
    pin->open.store(true, std::memory_order_release);
}

Result<void> free_group(uint64_t handle) {
    GroupPin group;
    const auto found = groups().pin(handle, group);
    if (found != Groups::Found::open || !group->open.load(std::memory_order_acquire))
        return fail(found == Groups::Found::closed ? Errc::closed : Errc::bad_handle,
                    "not the handle of an open group");
    if (group->fork_epoch != fork_epoch())
        return fail(Errc::closed, "the group belongs to the process that forked this one");
    if (group->freeing.exchange(true)) return fail(Errc::closed, "another thread frees the group");
    // When the session is closed or lost, the daemon has freed the group.
    auto session = session_of(group->session);
    if (session && !(*session)->unusable()) {
        nexar_shm_descriptor d{};
        d.kind = NEXAR_CMD_GROUP_FREE;
        d.group = group->membership;
        d.epoch = group->epoch;
        auto done = (*session)->command(d);
        if (!done && !(*session)->unusable()) {
            group->freeing.store(false);
            return fail(done.error());
        }
    }
    GroupPin closed;
    groups().close(handle, closed);
    return {};
}

void close_groups_of(uint64_t session) {
    for (uint32_t i = 0; i < Groups::capacity_max; ++i) {
        GroupPin pin, closed;
        if (groups().pin_index(i, pin) == Groups::Found::open && pin->session == session)
            groups().close(pin->handle, closed);
    }
}

}  // namespace nexar::c
