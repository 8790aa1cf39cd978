// See opening.hpp.
#include "opening.hpp"

#include <algorithm>

#include "core/child_name.hpp"
#include "tables.hpp"

namespace nexar::c {

Result<uint64_t> reserve_group(const Session& session, const std::shared_ptr<const std::string>& name,
                               uint64_t flags) {
    auto group = std::make_unique<Group>();
    group->session = session.handle;
    group->fork_epoch = session.fork_epoch;
    group->name = name;
    group->flags = flags;
    Group* raw = group.get();
    const uint64_t handle = groups().insert(std::move(group), [](uint32_t) {});
    if (handle == 0)
        return fail(Errc::table_full, "this process has " + std::to_string(Groups::capacity_max) +
                                          " groups; no more are possible: free one");
    raw->handle = handle;  // no other thread knows the handle yet
    return handle;
}

void name_child(uint64_t handle, bool has_colour, uint32_t colour) {
    GroupPin pin;
    if (groups().pin(handle, pin) != Groups::Found::open) return;
    pin->is_child = true;
    if (has_colour) pin->colour = colour;
}

Result<Slot> start_opening(Session& session, const GroupRequest& wanted, bool blocking) {
    if (auto error = session.unusable()) return fail(*error);
    const auto name = std::make_shared<const std::string>(wanted.name);
    Label label{wanted.user_data, 0, 0, blocking ? Holder::call : Holder::handle, name};
    NEXAR_TRY(label.group, reserve_group(session, name, wanted.flags));
    nexar_shm_descriptor d{};
    d.kind = NEXAR_CMD_GROUP_OPEN;
    nexar_shm_payload payload{};
    payload.group_open = payload_of(wanted);
    auto taken = session.take(d, {}, label, &payload);
    if (!taken) {
        finish_opening(label.group, {}, false);
        return fail(taken.error());
    }
    NEXAR_TRY_VOID(session.submit_taken(*taken));
    return taken->slot;
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
    if (pin->is_child)
        pin->name =
            std::make_shared<const std::string>(nexar::child_name(*pin->name, result.sequence, pin->colour));
    pin->open.store(true, std::memory_order_release);
}

namespace {

// The bytes of at most `most` that end with a whole character of UTF-8.
size_t whole_characters(std::string_view text, size_t most) {
    if (text.size() <= most) return text.size();
    while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
    return most;
}

// `aborted`: why the rank ends the group, not only its own part in it.
Result<void> leave_group(uint64_t handle, const nexar_shm_payload* aborted) {
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
        d.kind = aborted ? NEXAR_CMD_GROUP_ABORT : NEXAR_CMD_GROUP_FREE;
        d.group = group->membership;
        d.epoch = group->epoch;
        auto done = (*session)->command(d, aborted);
        if (!done && !(*session)->unusable()) {
            group->freeing.store(false);
            return fail(done.error());
        }
    }
    GroupPin closed;
    groups().close(handle, closed);
    return {};
}

}  // namespace

Result<void> free_group(uint64_t handle) {
    return leave_group(handle, nullptr);
}

Result<void> abort_group(uint64_t handle, std::string_view reason) {
    nexar_shm_payload payload{};
    const std::string_view part =
        reason.substr(0, whole_characters(reason, sizeof payload.group_abort.reason));
    payload.group_abort.reason_bytes = static_cast<uint32_t>(part.size());
    std::ranges::copy(part, payload.group_abort.reason);
    return leave_group(handle, &payload);
}

void close_groups_of(uint64_t session) {
    for (uint32_t i = 0; i < Groups::capacity_max; ++i) {
        GroupPin pin, closed;
        if (groups().pin_index(i, pin) == Groups::Found::open && pin->session == session)
            groups().close(pin->handle, closed);
    }
}

}  // namespace nexar::c
