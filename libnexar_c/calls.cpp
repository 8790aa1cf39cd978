// See calls.hpp.
#include "calls.hpp"

#include "structs.hpp"
#include "turn.hpp"

namespace nexar::c {

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
    const Turn turn(*pinned->group, operation.kind);
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
    const Turn turn(*pinned->group, operation.kind);
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
