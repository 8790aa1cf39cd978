// The exported operations of include/nexar.h: those of the table, and messages.
#include <cstring>

#include "operation.hpp"
#include "structs.hpp"
#include "tables.hpp"

using namespace nexar;
using namespace nexar::c;

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
                 nexar_completion* completion = nullptr) {
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
    return outcome.error ? failed(outcome.context(), *outcome.error) : NEXAR_OK;
}

// Parameters and initialisers of a row's functions, by the values in the row's columns.
#define NEXAR_TAKES_nothing
#define NEXAR_TAKES_data , void *data, uint64_t count, nexar_dtype dtype
#define NEXAR_TAKES_in_out , const void *in, void *out, uint64_t count, nexar_dtype dtype
#define NEXAR_TAKES_in_out_counts , const void *in, void *out, const uint64_t *counts, nexar_dtype dtype
#define NEXAR_TAKES_in_out_own_counts                                                         \
    , const void *in, const uint64_t *send_counts, void *out, const uint64_t *receive_counts, \
        nexar_dtype dtype
#define NEXAR_TAKES_moves
#define NEXAR_TAKES_reduces , nexar_reduce_op op
#define NEXAR_TAKES_unrooted
#define NEXAR_TAKES_rooted , uint32_t root
#define NEXAR_MAKES_nothing
#define NEXAR_MAKES_data .in = data, .out = data, .count = count, .dtype = dtype,
#define NEXAR_MAKES_in_out .in = in, .out = out, .count = count, .dtype = dtype,
#define NEXAR_MAKES_in_out_counts .in = in, .out = out, .dtype = dtype, .counts = counts,
#define NEXAR_MAKES_in_out_own_counts \
    .in = in, .out = out, .dtype = dtype, .counts = send_counts, .receive_counts = receive_counts,
#define NEXAR_MAKES_moves
#define NEXAR_MAKES_reduces .op = op,
#define NEXAR_MAKES_unrooted
#define NEXAR_MAKES_rooted .peer = root,

Operation send(const void* data, uint64_t count, nexar_dtype dtype, uint32_t to, uint64_t tag) {
    return {.kind = NEXAR_OP_SEND, .in = data, .count = count, .dtype = dtype, .peer = to, .tag = tag};
}
Operation recv(void* data, uint64_t count, nexar_dtype dtype, uint32_t from, uint64_t tag) {
    return {.kind = NEXAR_OP_RECV, .out = data, .count = count, .dtype = dtype, .peer = from, .tag = tag};
}

}  // namespace

extern "C" {

#define NEXAR_COLLECTIVE(number, name, NAME, summary, memory, in, out, in_place, reduction, root, ...)  \
    nexar_status nexar_##name(                                                                          \
        nexar_group* group NEXAR_TAKES_##memory NEXAR_TAKES_##reduction NEXAR_TAKES_##root,             \
        const nexar_op_options* options) {                                                              \
        return run(                                                                                     \
            group,                                                                                      \
            {.kind = NEXAR_OP_##NAME, NEXAR_MAKES_##memory NEXAR_MAKES_##reduction NEXAR_MAKES_##root}, \
            options);                                                                                   \
    }                                                                                                   \
    nexar_status nexar_##name##_start(                                                                  \
        nexar_group* group NEXAR_TAKES_##memory NEXAR_TAKES_##reduction NEXAR_TAKES_##root,             \
        const nexar_op_options* options, nexar_request* request) {                                      \
        return begin(                                                                                   \
            group,                                                                                      \
            {.kind = NEXAR_OP_##NAME, NEXAR_MAKES_##memory NEXAR_MAKES_##reduction NEXAR_MAKES_##root}, \
            options, request);                                                                          \
    }
#include "operations.def"

nexar_status nexar_send(nexar_group* group, const void* data, uint64_t count, nexar_dtype dtype, uint32_t to,
                        uint64_t tag, const nexar_op_options* options) {
    return run(group, send(data, count, dtype, to, tag), options);
}
nexar_status nexar_send_start(nexar_group* group, const void* data, uint64_t count, nexar_dtype dtype,
                              uint32_t to, uint64_t tag, const nexar_op_options* options,
                              nexar_request* request) {
    return begin(group, send(data, count, dtype, to, tag), options, request);
}
nexar_status nexar_recv(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype, uint32_t from,
                        uint64_t tag, nexar_completion* completion, const nexar_op_options* options) {
    return run(group, recv(data, count, dtype, from, tag), options, completion);
}
nexar_status nexar_recv_start(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype,
                              uint32_t from, uint64_t tag, const nexar_op_options* options,
                              nexar_request* request) {
    return begin(group, recv(data, count, dtype, from, tag), options, request);
}

}  // extern "C"
