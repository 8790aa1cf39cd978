// The exported functions of include/nexar.h that start persistent requests, and op groups.
#include <array>

#include "batch.hpp"
#include "calls.hpp"
#include "on_stack.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

// The turns of groups, of one call: without memory for one group.
class Turns {
  public:
    explicit Turns(const Batch* batch) : batch_(batch) {}
    Turns(const Turns&) = delete;
    Result<void> take(PinnedGroup& pinned, uint8_t kind) {
        if (has(*pinned.group)) return {};
        Turn turn = turn_of(batch_, *pinned.group, kind);
        NEXAR_TRY_VOID(turn.check());
        if (!turn.give_away()) return {};
        if (!first_)
            first_ = std::move(pinned.group);
        else
            more_.push_back(std::move(pinned.group));
        return {};
    }
    ~Turns() {
        if (first_) give_back(first_);
        for (GroupPin& group : more_) give_back(group);
    }
    // The batch has them from now on.
    void move_to(Batch& batch) {
        if (first_) batch.keep_turn(std::move(first_));
        for (GroupPin& group : more_) batch.keep_turn(std::move(group));
        more_.clear();
        first_ = GroupPin();
    }

  private:
    bool has(const Group& group) const {
        if (first_ && &*first_ == &group) return true;
        for (const GroupPin& one : more_)
            if (&*one == &group) return true;
        return false;
    }
    static void give_back(GroupPin& group) { group->in_collective.store(false, std::memory_order_release); }

    const Batch* const batch_;  // of this thread, or null
    GroupPin first_;
    std::vector<GroupPin> more_;
};

// Makes it pending again, with the turn of its group.
Result<Taken> activate(Session& session, const Slot& slot, Turns& turns) {
    NEXAR_TRY(const Session::Persistent which, session.persistent(slot));
    NEXAR_TRY(PinnedGroup group, group_of(reinterpret_cast<nexar_group*>(which.group)));
    NEXAR_TRY_VOID(turns.take(group, which.kind));
    return session.activate(slot);
}

// Submits them, or adds them to the batch.
Result<void> hand_over(Session& session, Batch* batch, std::span<const Taken> all, Turns& turns) {
    if (!batch) return session.submit_all(all);
    for (const Taken& taken : all) session.hold(*batch, taken);
    turns.move_to(*batch);
    return {};
}

std::string place_in_array(uint64_t i) {
    return "request " + std::to_string(i) + " of the array: ";
}

// The session of the first request that is not 0; none: all are 0.
Result<SessionPin> session_of_first(const nexar_request* requests, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        if (requests[i] == 0) continue;
        auto found = request_of(requests[i]);
        if (!found) return fail(found.error().code, place_in_array(i) + found.error().text);
        return std::move(found->session);
    }
    return SessionPin();
}

// All of them become pending, or none.
Result<void> activate_all(const nexar_request* requests, uint64_t count, Session& session, Turns& turns,
                          OnStack<Taken, 64>& out) {
    for (uint64_t i = 0; i < count; ++i) {
        if (requests[i] == 0) continue;
        Result<Taken> taken = [&]() -> Result<Taken> {
            NEXAR_TRY(PinnedRequest pinned, request_of(requests[i]));
            if (pinned.session->handle_index != session.handle_index)
                return fail(Errc::invalid_argument, "the requests are of several sessions");
            return activate(session, pinned.slot, turns);
        }();
        if (taken) {
            out.push_back(*taken);
            continue;
        }
        for (const Taken& one : out) session.drop_taken(one);
        Error error = taken.error();
        error.text = place_in_array(i) + error.text;
        return fail(std::move(error));
    }
    return {};
}

Result<void> end_batch(nexar_session* handle, bool submits) {
    NEXAR_TRY(SessionPin session, session_of(handle));
    Batch* batch = session->batch();
    if (!batch) return fail(Errc::bad_state, "this thread has not called nexar_ops_begin");
    if (submits && !batch->unnest()) return {};
    Result<void> done;
    if (submits)
        done = session->submit_batch(*batch);
    else
        session->drop_batch(*batch);
    session->batches().end(*batch);
    return done;
}

}  // namespace

extern "C" {

nexar_status nexar_request_start(nexar_request request) {
    constexpr const char* op = "request_start";
    auto pinned = request_of(request);
    if (!pinned) return failed(op, pinned.error());
    Batch* const batch = pinned->session->batch();
    Turns turns(batch);
    auto taken = activate(*pinned->session, pinned->slot, turns);
    if (!taken) return failed(op, taken.error());
    auto done = hand_over(*pinned->session, batch, {&*taken, 1}, turns);
    return done ? NEXAR_OK : failed(op, done.error());
}

nexar_status nexar_request_start_all(const nexar_request* requests, uint64_t count) {
    constexpr const char* op = "request_start_all";
    if ((!requests && count != 0) || count > NEXAR_SHM_SLOTS_MAX)
        return failed(op, Errc::invalid_argument,
                      "requests is NULL, or count is " + std::to_string(count) + "; allowed: 0 to " +
                          std::to_string(NEXAR_SHM_SLOTS_MAX));
    auto session = session_of_first(requests, count);
    if (!session) return failed(op, session.error());
    if (!*session) return NEXAR_OK;
    Batch* const batch = (*session)->batch();
    Turns turns(batch);
    OnStack<Taken, 64> taken(count);
    auto good = activate_all(requests, count, **session, turns, taken);
    if (good) good = hand_over(**session, batch, {taken.data(), taken.size()}, turns);
    return good ? NEXAR_OK : failed(op, good.error());
}

nexar_status nexar_ops_begin(nexar_session* handle) {
    auto session = session_of(handle);
    if (!session) return failed("ops_begin", session.error());
    if (auto error = (*session)->unusable()) return failed("ops_begin", *error);
    if (Batch* batch = (*session)->batch())
        batch->nest();
    else
        (*session)->batches().begin();
    return NEXAR_OK;
}

nexar_status nexar_ops_end(nexar_session* session) {
    auto done = end_batch(session, true);
    return done ? NEXAR_OK : failed("ops_end", done.error());
}

nexar_status nexar_ops_drop(nexar_session* session) {
    auto done = end_batch(session, false);
    return done ? NEXAR_OK : failed("ops_drop", done.error());
}

}  // extern "C"
