// The exported operations of include/nexar.h between two ranks.
#include "batch.hpp"
#include "calls.hpp"
#include "structs.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

Operation send(const void* data, uint64_t count, nexar_dtype dtype, uint32_t to, uint64_t tag) {
    return {.kind = NEXAR_OP_SEND, .in = data, .count = count, .dtype = dtype, .peer = to, .tag = tag};
}
Operation recv(void* data, uint64_t count, nexar_dtype dtype, uint32_t from, uint64_t tag) {
    return {.kind = NEXAR_OP_RECV, .out = data, .count = count, .dtype = dtype, .peer = from, .tag = tag};
}
Operation sendv(const nexar_piece* pieces, uint64_t piece_count, nexar_dtype dtype, uint32_t to,
                uint64_t tag) {
    return {.kind = NEXAR_OP_SEND,
            .dtype = dtype,
            .peer = to,
            .tag = tag,
            .pieces = pieces,
            .piece_count = piece_count,
            .in_pieces = true,
            .called = "sendv"};
}
Operation recvv(const nexar_piece* pieces, uint64_t piece_count, nexar_dtype dtype, uint32_t from,
                uint64_t tag) {
    return {.kind = NEXAR_OP_RECV,
            .dtype = dtype,
            .peer = from,
            .tag = tag,
            .pieces = pieces,
            .piece_count = piece_count,
            .in_pieces = true,
            .called = "recvv"};
}
Operation probe(uint32_t from, uint64_t tag) {
    return {.kind = NEXAR_OP_PROBE, .peer = from, .tag = tag};
}
Operation mprobe(uint32_t from, uint64_t tag) {
    return {.kind = NEXAR_OP_MPROBE, .peer = from, .tag = tag};
}
Operation mrecv(nexar_message message, void* data, uint64_t count, nexar_dtype dtype) {
    return {.kind = NEXAR_OP_MRECV, .out = data, .count = count, .dtype = dtype, .tag = message};
}

// The two halves of nexar_sendrecv.
struct Exchange {
    Operation send, receive;
    const nexar_op_options* options;
    nexar_completion* completion;
};

Result<void> check_exchange(const Exchange& e) {
    NEXAR_TRY_VOID(check_result(e.completion, "nexar_completion"));
    if (e.send.replaces) return {};
    const auto end = [](const void* data, uint64_t count, nexar_dtype dtype) {
        return reinterpret_cast<uintptr_t>(data) + count * dtype_size(dtype);  // too many are refused later
    };
    const auto in = reinterpret_cast<uintptr_t>(e.send.in), out = reinterpret_cast<uintptr_t>(e.receive.out);
    const bool apart = in >= end(e.receive.out, e.receive.count, e.receive.dtype) ||
                       out >= end(e.send.in, e.send.count, e.send.dtype);
    if (!apart && e.send.count != 0 && e.receive.count != 0)
        return fail(Errc::invalid_argument, "input and output overlap");
    return {};
}

// Both requests have their slots before one is submitted: without room for both nothing happens.
nexar_status exchange(nexar_group* group, const char* called, Exchange e) {
    const auto pinned = group_of(group);
    if (!pinned) return failed(called, pinned.error());
    e.send.called = e.receive.called = called;
    const ErrorContext context = context_of(*pinned->group, e.send.kind, called);
    if (auto good = check_exchange(e); !good) return failed(context, good.error());
    if (auto may = may_block(*pinned->session); !may) return failed(context, may.error());
    auto wanted = read_op_options(e.send, e.options);
    if (!wanted) return failed(context, wanted.error());
    Session& session = *pinned->session;
    auto receive = prepare(session, *pinned->group, e.receive, Use::blocking, *wanted);
    if (!receive) return failed(context, receive.error());
    auto send = prepare(session, *pinned->group, e.send, Use::blocking, *wanted);
    if (!send) {
        session.drop_taken(*receive);
        return failed(context, send.error());
    }
    // An error: the session is unusable, and both end with it.
    const Taken both[] = {*receive, *send};
    static_cast<void>(session.submit_all(both));
    const Outcome sent = session.finish_blocking(send->slot);
    const Outcome received = session.finish_blocking(receive->slot);
    session.free_idle_scratch();
    if (e.completion && !received.error)
        write_result(e.completion, received.completion, e.completion->struct_size);
    if (sent.error) return failed(sent.context(), *sent.error);
    return received.error ? failed(received.context(), *received.error) : NEXAR_OK;
}

}  // namespace

extern "C" {

nexar_status nexar_send(nexar_group* group, const void* data, uint64_t count, nexar_dtype dtype, uint32_t to,
                        uint64_t tag, const nexar_op_options* options) {
    return run(group, send(data, count, dtype, to, tag), options);
}
nexar_status nexar_send_start(nexar_group* group, const void* data, uint64_t count, nexar_dtype dtype,
                              uint32_t to, uint64_t tag, const nexar_op_options* options,
                              nexar_request* request) {
    return begin(group, send(data, count, dtype, to, tag), options, request);
}
nexar_status nexar_send_init(nexar_group* group, const void* data, uint64_t count, nexar_dtype dtype,
                             uint32_t to, uint64_t tag, const nexar_op_options* options,
                             nexar_request* request) {
    return init(group, send(data, count, dtype, to, tag), options, request);
}
nexar_status nexar_recv_init(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype, uint32_t from,
                             uint64_t tag, const nexar_op_options* options, nexar_request* request) {
    return init(group, recv(data, count, dtype, from, tag), options, request);
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

nexar_status nexar_sendrecv(nexar_group* group, const void* in, uint64_t send_count, nexar_dtype send_dtype,
                            uint32_t to, uint64_t send_tag, void* out, uint64_t receive_count,
                            nexar_dtype receive_dtype, uint32_t from, uint64_t receive_tag,
                            nexar_completion* completion, const nexar_op_options* options) {
    return exchange(group, "sendrecv",
                    {send(in, send_count, send_dtype, to, send_tag),
                     recv(out, receive_count, receive_dtype, from, receive_tag), options, completion});
}
nexar_status nexar_sendrecv_replace(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype,
                                    uint32_t to, uint64_t send_tag, uint32_t from, uint64_t receive_tag,
                                    nexar_completion* completion, const nexar_op_options* options) {
    Operation out = send(data, count, dtype, to, send_tag);
    out.replaces = true;
    return exchange(group, "sendrecv_replace",
                    {out, recv(data, count, dtype, from, receive_tag), options, completion});
}
nexar_status nexar_sendv(nexar_group* group, const nexar_piece* pieces, uint64_t piece_count,
                         nexar_dtype dtype, uint32_t to, uint64_t tag, const nexar_op_options* options) {
    return run(group, sendv(pieces, piece_count, dtype, to, tag), options);
}
nexar_status nexar_sendv_start(nexar_group* group, const nexar_piece* pieces, uint64_t piece_count,
                               nexar_dtype dtype, uint32_t to, uint64_t tag, const nexar_op_options* options,
                               nexar_request* request) {
    return begin(group, sendv(pieces, piece_count, dtype, to, tag), options, request);
}
nexar_status nexar_recvv(nexar_group* group, const nexar_piece* pieces, uint64_t piece_count,
                         nexar_dtype dtype, uint32_t from, uint64_t tag, nexar_completion* completion,
                         const nexar_op_options* options) {
    return run(group, recvv(pieces, piece_count, dtype, from, tag), options, completion);
}
nexar_status nexar_recvv_start(nexar_group* group, const nexar_piece* pieces, uint64_t piece_count,
                               nexar_dtype dtype, uint32_t from, uint64_t tag,
                               const nexar_op_options* options, nexar_request* request) {
    return begin(group, recvv(pieces, piece_count, dtype, from, tag), options, request);
}
nexar_status nexar_probe(nexar_group* group, uint32_t from, uint64_t tag, nexar_completion* completion,
                         const nexar_op_options* options) {
    return run(group, probe(from, tag), options, completion);
}
nexar_status nexar_probe_start(nexar_group* group, uint32_t from, uint64_t tag,
                               const nexar_op_options* options, nexar_request* request) {
    return begin(group, probe(from, tag), options, request);
}
nexar_status nexar_mprobe(nexar_group* group, uint32_t from, uint64_t tag, nexar_message* message,
                          nexar_completion* completion, const nexar_op_options* options) {
    if (!message) return failed("mprobe", Errc::invalid_argument, "message is NULL");
    return run(group, mprobe(from, tag), options, completion, message);
}
nexar_status nexar_mrecv(nexar_group* group, nexar_message message, void* data, uint64_t count,
                         nexar_dtype dtype, nexar_completion* completion, const nexar_op_options* options) {
    return run(group, mrecv(message, data, count, dtype), options, completion);
}
nexar_status nexar_mrecv_start(nexar_group* group, nexar_message message, void* data, uint64_t count,
                               nexar_dtype dtype, const nexar_op_options* options, nexar_request* request) {
    return begin(group, mrecv(message, data, count, dtype), options, request);
}
nexar_status nexar_message_free(nexar_group* group, nexar_message message) {
    return run(group, {.kind = NEXAR_OP_MESSAGE_FREE, .tag = message}, nullptr);
}

}  // extern "C"
