// See calls.hpp.
#include "calls.hpp"

#include "structs.hpp"

namespace nexar::c {

namespace {

// One thread at a time is inside collectives of a group (a rule of nexar.h): the order of two threads could
// differ between ranks.
class Turn {
  public:
    Turn(Group& group, const Operation& operation) {
        if (!is_collective(operation.kind)) return;
        group_ = &group;
        taken_ = !group.in_collective.exchange(true, std::memory_order_acquire);
    }
    ~Turn() {
        if (group_ && taken_) group_->in_collective.store(false, std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    Result<void> check() const {
        if (taken_) return {};
        return fail(Errc::bad_state,
                    "another thread is inside a collective of this group: their order would differ between "
                    "ranks; use "
                    "a lock, or a group per thread");
    }

  private:
    Group* group_ = nullptr;
    bool taken_ = true;
};

}  // namespace

ErrorContext context_of(const Group& group, const Operation& operation) {
    ErrorContext out(kind_name(operation.kind));
    out.group = group.name.get();
    out.epoch = group.epoch;
    return out;
}

nexar_status begin(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                   nexar_request* request) {
    auto pinned = group_of(handle);
    if (!pinned) return failed(kind_name(operation.kind), pinned.error());
    const ErrorContext context = context_of(*pinned->group, operation);
    if (!request) return failed(context, Errc::invalid_argument, "request is NULL");
    auto wanted = read_op_options(operation, options);
    if (!wanted) return failed(context, wanted.error());
    const Turn turn(*pinned->group, operation);
    if (auto mine = turn.check(); !mine) return failed(context, mine.error());
    auto slot = start(*pinned->session, *pinned->group, operation, false, *wanted);
    if (!slot) return failed(context, slot.error());
    *request = pinned->session->handle_of(*slot);
    return NEXAR_OK;
}

nexar_status run(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                 nexar_completion* completion, nexar_message* message) {
    auto pinned = group_of(handle);
    if (!pinned) return failed(kind_name(operation.kind), pinned.error());
    const ErrorContext context = context_of(*pinned->group, operation);
    if (auto good = check_result(completion, "nexar_completion"); !good) return failed(context, good.error());
    auto wanted = read_op_options(operation, options);
    if (!wanted) return failed(context, wanted.error());
    const Turn turn(*pinned->group, operation);
    if (auto mine = turn.check(); !mine) return failed(context, mine.error());
    auto slot = start(*pinned->session, *pinned->group, operation, true, *wanted);
    if (!slot) return failed(context, slot.error());
    const Outcome outcome = pinned->session->finish_blocking(*slot);
    pinned->session->free_idle_scratch();
    if (completion) write_result(completion, outcome.completion, completion->struct_size);
    if (message && !outcome.error) *message = outcome.result.message;
    return outcome.error ? failed(outcome.context(), *outcome.error) : NEXAR_OK;
}

}  // namespace nexar::c
