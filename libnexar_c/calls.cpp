// See calls.hpp.
#include "calls.hpp"

#include "batch.hpp"
#include "structs.hpp"

namespace nexar::c {

ErrorContext context_of(const Group& group, uint8_t kind, const char* called) {
    ErrorContext out(name_of_call(kind, called));
    out.group = group.name.get();
    out.epoch = group.epoch;
    return out;
}

nexar_status begin(nexar_group* handle, Call&& call, nexar_request* request) {
    auto pinned = group_of(handle);
    if (!pinned) return failed(call.name(), pinned.error());
    Session& session = *pinned->session;
    const Group& group = *pinned->group;
    const ErrorContext context = context_of(group, call.kind, call.called);
    if (!request) return failed(context, Errc::invalid_argument, "request is NULL");
    if (auto good = call.read(); !good) return failed(context, good.error());
    Batch* const batch = session.batch();
    Turn turn = turn_of(batch, *pinned->group, call.kind);
    if (auto mine = turn.check(); !mine) return failed(context, mine.error());
    auto taken = call.prepare(session, group, Use::started);
    if (!taken) return failed(context, taken.error());
    const nexar_request started = session.handle_of(taken->slot);
    if (auto done = hand_over(*pinned, batch, turn, *taken); !done) return failed(context, done.error());
    *request = started;
    return NEXAR_OK;
}

// It has no place in the group's order, so it takes no turn.
nexar_status init(nexar_group* handle, Call&& call, nexar_request* request) {
    auto pinned = group_of(handle);
    if (!pinned) return failed(call.name(), pinned.error());
    const ErrorContext context = context_of(*pinned->group, call.kind, call.called);
    if (!request) return failed(context, Errc::invalid_argument, "request is NULL");
    if (auto good = call.read(); !good) return failed(context, good.error());
    auto taken = call.prepare(*pinned->session, *pinned->group, Use::persistent);
    if (!taken) return failed(context, taken.error());
    pinned->session->make_persistent(*taken);
    *request = pinned->session->handle_of(taken->slot);
    return NEXAR_OK;
}

nexar_status run(nexar_group* handle, Call&& call, Outcome& outcome) {
    auto pinned = group_of(handle);
    if (!pinned) return failed(call.name(), pinned.error());
    Session& session = *pinned->session;
    const ErrorContext context = context_of(*pinned->group, call.kind, call.called);
    if (auto good = call.read(); !good) return failed(context, good.error());
    const bool ends_at_once = call.kind == NEXAR_OP_MESSAGE_FREE;
    if (auto may = may_block(session); !may && !ends_at_once) return failed(context, may.error());
    const Turn turn(*pinned->group, call.kind);
    if (auto mine = turn.check(); !mine) return failed(context, mine.error());
    auto taken = call.prepare(session, *pinned->group, Use::blocking);
    if (!taken) return failed(context, taken.error());
    if (auto submitted = session.submit_taken(*taken); !submitted) return failed(context, submitted.error());
    outcome = session.finish_blocking(taken->slot);
    session.free_idle_scratch();
    return outcome.error ? failed(outcome.context(), *outcome.error) : NEXAR_OK;
}

namespace {

class OperationCall final : public Call {
  public:
    OperationCall(const Operation& operation, const nexar_op_options* options,
                  const nexar_completion* completion = nullptr)
        : Call(operation.kind, operation.called),
          operation_(operation),
          given_(options),
          completion_(completion) {}
    Result<void> read() override {
        NEXAR_TRY_VOID(check_result(completion_, "nexar_completion"));
        NEXAR_TRY(options_, read_op_options(operation_, given_));
        return {};
    }
    Result<Taken> prepare(Session& session, const Group& group, Use use) const override {
        return c::prepare(session, group, operation_, use, options_);
    }

  private:
    const Operation& operation_;
    const nexar_op_options* given_;
    const nexar_completion* completion_;
    OpOptions options_;
};

}  // namespace

nexar_status begin(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                   nexar_request* request) {
    return begin(handle, OperationCall(operation, options), request);
}

nexar_status init(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                  nexar_request* request) {
    return init(handle, OperationCall(operation, options), request);
}

nexar_status run(nexar_group* handle, const Operation& operation, const nexar_op_options* options,
                 nexar_completion* completion, nexar_message* message) {
    Outcome outcome;
    const nexar_status status = run(handle, OperationCall(operation, options, completion), outcome);
    const bool ended = outcome.completion.status != NEXAR_PENDING;
    if (completion && ended) write_result(completion, outcome.completion, completion->struct_size);
    if (message && status == NEXAR_OK) *message = outcome.result.message;
    return status;
}

}  // namespace nexar::c
