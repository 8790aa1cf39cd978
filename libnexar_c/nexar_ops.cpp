// The exported operations and requests of include/nexar.h.
#include <algorithm>
#include <cstring>
#include <vector>

#include "operation.hpp"
#include "sleep.hpp"
#include "tables.hpp"

using namespace nexar;
using namespace nexar::c;

namespace {

nexar_status begin(nexar_group* handle, const Operation& operation, nexar_request* request) {
    auto pinned = group_of(handle);
    if (!pinned) return failed(operation.name, pinned.error());
    if (!request) return failed(operation.name, Errc::invalid_argument, "request is NULL");
    auto slot = start(*pinned->session, *pinned->group, operation, false, of_the_group);
    if (!slot) return failed(operation.name, slot.error());
    *request = request_handle(*pinned->session, *slot);
    return NEXAR_OK;
}

// A caller with an older header gets the part that it knows.
void give(nexar_completion* out, nexar_completion value) {
    if (!out || out->struct_size < sizeof(uint32_t) * 2) return;
    value.struct_size = out->struct_size;
    std::memcpy(out, &value, std::min<size_t>(out->struct_size, sizeof value));
}

nexar_status run(nexar_group* handle, const Operation& operation, int64_t timeout_ms,
                 nexar_completion* completion = nullptr) {
    auto pinned = group_of(handle);
    if (!pinned) return failed(operation.name, pinned.error());
    auto slot = start(*pinned->session, *pinned->group, operation, true, timeout_ms);
    if (!slot) return failed(operation.name, slot.error());
    const Ending ending = pinned->session->finish_blocking(*slot);
    give(completion, ending.completion);
    return ending.error ? failed(operation.name, *ending.error) : NEXAR_OK;
}

Operation all_reduce(const void* in, void* out, uint64_t count, nexar_dtype dtype, nexar_reduce_op op) {
    return {"all_reduce", NEXAR_OP_ALL_REDUCE, in, out, count, dtype, op, 0, 0};
}
Operation reduce(const void* in, void* out, uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                 uint32_t root) {
    return {"reduce", NEXAR_OP_REDUCE, in, out, count, dtype, op, root, 0};
}
Operation broadcast(void* data, uint64_t count, nexar_dtype dtype, uint32_t root) {
    return {"broadcast", NEXAR_OP_BROADCAST, nullptr, data, count, dtype, NEXAR_SUM, root, 0};
}
Operation all_gather(const void* in, void* out, uint64_t count, nexar_dtype dtype) {
    return {"all_gather", NEXAR_OP_ALL_GATHER, in, out, count, dtype, NEXAR_SUM, 0, 0};
}
Operation reduce_scatter(const void* in, void* out, uint64_t count, nexar_dtype dtype, nexar_reduce_op op) {
    return {"reduce_scatter", NEXAR_OP_REDUCE_SCATTER, in, out, count, dtype, op, 0, 0};
}
Operation barrier() {
    return {"barrier", NEXAR_OP_BARRIER, nullptr, nullptr, 0, NEXAR_U8, NEXAR_SUM, 0, 0};
}
Operation send(const void* data, uint64_t count, nexar_dtype dtype, uint32_t to, uint64_t tag) {
    return {"send", NEXAR_OP_SEND, data, nullptr, count, dtype, NEXAR_SUM, to, tag};
}
Operation recv(void* data, uint64_t count, nexar_dtype dtype, uint32_t from, uint64_t tag) {
    return {"recv", NEXAR_OP_RECV, nullptr, data, count, dtype, NEXAR_SUM, from, tag};
}

Time deadline(int64_t timeout_ms) {
    constexpr int64_t ms_max = INT64_MAX / 4'000'000;
    return timeout_ms < 0 || timeout_ms > ms_max ? never : now() + std::chrono::milliseconds(timeout_ms);
}

// The answer of nexar_test and nexar_wait once the request was looked at.
nexar_status answer(const char* op, const Ending& ending, nexar_completion* completion) {
    if (ending.freed) return failed(op, Errc::bad_handle, "the request was freed, or never was one");
    give(completion, ending.completion);
    if (ending.error) return failed(op, *ending.error);
    return ending.completion.status;
}

}  // namespace

extern "C" {

nexar_status nexar_all_reduce(nexar_group* group, const void* in, void* out, uint64_t count,
                              nexar_dtype dtype, nexar_reduce_op op, int64_t timeout_ms) {
    return run(group, all_reduce(in, out, count, dtype, op), timeout_ms);
}
nexar_status nexar_all_reduce_start(nexar_group* group, const void* in, void* out, uint64_t count,
                                    nexar_dtype dtype, nexar_reduce_op op, nexar_request* request) {
    return begin(group, all_reduce(in, out, count, dtype, op), request);
}
nexar_status nexar_reduce(nexar_group* group, const void* in, void* out, uint64_t count, nexar_dtype dtype,
                          nexar_reduce_op op, uint32_t root, int64_t timeout_ms) {
    return run(group, reduce(in, out, count, dtype, op, root), timeout_ms);
}
nexar_status nexar_reduce_start(nexar_group* group, const void* in, void* out, uint64_t count,
                                nexar_dtype dtype, nexar_reduce_op op, uint32_t root,
                                nexar_request* request) {
    return begin(group, reduce(in, out, count, dtype, op, root), request);
}
nexar_status nexar_broadcast(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype, uint32_t root,
                             int64_t timeout_ms) {
    return run(group, broadcast(data, count, dtype, root), timeout_ms);
}
nexar_status nexar_broadcast_start(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype,
                                   uint32_t root, nexar_request* request) {
    return begin(group, broadcast(data, count, dtype, root), request);
}
nexar_status nexar_all_gather(nexar_group* group, const void* in, void* out, uint64_t count,
                              nexar_dtype dtype, int64_t timeout_ms) {
    return run(group, all_gather(in, out, count, dtype), timeout_ms);
}
nexar_status nexar_all_gather_start(nexar_group* group, const void* in, void* out, uint64_t count,
                                    nexar_dtype dtype, nexar_request* request) {
    return begin(group, all_gather(in, out, count, dtype), request);
}
nexar_status nexar_reduce_scatter(nexar_group* group, const void* in, void* out, uint64_t count,
                                  nexar_dtype dtype, nexar_reduce_op op, int64_t timeout_ms) {
    return run(group, reduce_scatter(in, out, count, dtype, op), timeout_ms);
}
nexar_status nexar_reduce_scatter_start(nexar_group* group, const void* in, void* out, uint64_t count,
                                        nexar_dtype dtype, nexar_reduce_op op, nexar_request* request) {
    return begin(group, reduce_scatter(in, out, count, dtype, op), request);
}
nexar_status nexar_barrier(nexar_group* group, int64_t timeout_ms) {
    return run(group, barrier(), timeout_ms);
}
nexar_status nexar_barrier_start(nexar_group* group, nexar_request* request) {
    return begin(group, barrier(), request);
}
nexar_status nexar_send(nexar_group* group, const void* data, uint64_t count, nexar_dtype dtype, uint32_t to,
                        uint64_t tag, int64_t timeout_ms) {
    return run(group, send(data, count, dtype, to, tag), timeout_ms);
}
nexar_status nexar_send_start(nexar_group* group, const void* data, uint64_t count, nexar_dtype dtype,
                              uint32_t to, uint64_t tag, nexar_request* request) {
    return begin(group, send(data, count, dtype, to, tag), request);
}
nexar_status nexar_recv(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype, uint32_t from,
                        uint64_t tag, int64_t timeout_ms, nexar_completion* completion) {
    return run(group, recv(data, count, dtype, from, tag), timeout_ms, completion);
}
nexar_status nexar_recv_start(nexar_group* group, void* data, uint64_t count, nexar_dtype dtype,
                              uint32_t from, uint64_t tag, nexar_request* request) {
    return begin(group, recv(data, count, dtype, from, tag), request);
}

nexar_status nexar_test(nexar_request request, nexar_completion* completion) {
    auto pinned = request_of(request);
    if (!pinned) return failed("test", pinned.error());
    return answer("test", pinned->session->look(pinned->slot), completion);
}

nexar_status nexar_wait(nexar_request request, int64_t timeout_ms, nexar_completion* completion) {
    auto pinned = request_of(request);
    if (!pinned) return failed("wait", pinned.error());
    // A freed handle must not wait on whoever has its slot now.
    Ending ending = pinned->session->look(pinned->slot);
    if (ending.freed || ending.completion.status != NEXAR_PENDING) return answer("wait", ending, completion);
    const auto waited = pinned->session->wait(pinned->slot, deadline(timeout_ms), true);
    ending = pinned->session->look(pinned->slot);
    if (ending.freed || ending.completion.status != NEXAR_PENDING) return answer("wait", ending, completion);
    give(completion, ending.completion);
    if (waited == Session::Waited::signal)
        return failed("wait", Errc::interrupted, "a signal arrived while waiting");
    return failed("wait", Errc::timed_out, "the request is still pending");
}

nexar_status nexar_wait_any(const nexar_request* requests, size_t count, int64_t timeout_ms, size_t* index) {
    if (!requests || !index || count == 0 || count > NEXAR_SHM_SLOTS_MAX)
        return failed("wait_any", Errc::invalid_argument,
                      "requests or index is NULL, or count is not 1 to 4096");
    auto first = request_of(requests[0]);
    if (!first) return failed("wait_any", first.error());
    std::vector<Slot> slots;
    slots.reserve(count);
    for (size_t i = 0; i < count; ++i) {
        auto pinned = request_of(requests[i]);
        if (!pinned) return failed("wait_any", pinned.error());
        if (pinned->session->handle_index != first->session->handle_index)
            return failed("wait_any", Errc::invalid_argument, "the requests are of several sessions");
        if (pinned->session->look(pinned->slot).freed)
            return failed("wait_any", Errc::bad_handle, "request " + std::to_string(i) + " was freed");
        slots.push_back(pinned->slot);
    }
    switch (first->session->wait_any(slots.data(), count, deadline(timeout_ms), *index)) {
        case Session::Waited::ended:
            return NEXAR_OK;
        case Session::Waited::signal:
            return failed("wait_any", Errc::interrupted, "a signal arrived while waiting");
        case Session::Waited::timed_out:
            break;
    }
    return failed("wait_any", Errc::timed_out, "all requests are still pending");
}

nexar_status nexar_cancel(nexar_request request) {
    auto pinned = request_of(request);
    if (!pinned) return failed("cancel", pinned.error());
    if (pinned->session->look(pinned->slot).freed)
        return failed("cancel", Errc::bad_handle, "the request was freed, or never was one");
    pinned->session->cancel(pinned->slot);
    return NEXAR_OK;
}

nexar_status nexar_request_free(nexar_request request) {
    auto pinned = request_of(request);
    if (!pinned) return failed("request_free", pinned.error());
    auto done = pinned->session->free(pinned->slot);
    return done ? NEXAR_OK : failed("request_free", done.error());
}

}  // extern "C"
