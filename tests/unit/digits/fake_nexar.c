/* A libnexar_c of one process, for binding_test.py: rank 1 of 3, whose fellows do what fake_next says.
 * Compiled against nexar.h, so that a signature or struct that nexar.py has wrong shows. */
#include <errno.h>
#include <nexar.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 3, RANK = 1, SOURCE = 2, TAG = 9 };
enum { SUCCEEDS, START_FAILS, LOSES_RANK, NEVER_ENDS, INTERRUPTS };

NEXAR_API int fake_next;       /* what the next operation or group_open does */
NEXAR_API int fake_interrupts; /* signals that ended a wait */
NEXAR_API int fake_cancels, fake_frees, fake_open_requests, fake_open_sessions, fake_open_groups,
    fake_memories;
NEXAR_API nexar_group_options fake_group_options;

static nexar_error last;
static nexar_status pending_status; /* of the one request */
static nexar_completion completed;
static char session_object, group_object;

static nexar_status fail(nexar_status code, const char* op, int64_t rank, const char* text) {
    memset(&last, 0, sizeof last);
    last.code = code;
    last.rank = rank;
    last.other_rank = -1;
    snprintf(last.op, sizeof last.op, "%s", op);
    snprintf(last.text, sizeof last.text, "%s", text);
    if (rank >= 0) memset(last.node, 'a', 64);
    return code;
}

nexar_status nexar_last_error(nexar_error* error) {
    if (error->struct_size != sizeof last) return NEXAR_ERR_INVALID_ARGUMENT;
    last.struct_size = sizeof last;
    *error = last;
    return NEXAR_OK;
}
const char* nexar_status_name(nexar_status status) {
    return status == NEXAR_ERR_PEER_LOST   ? "peer_lost"
           : status == NEXAR_ERR_TIMED_OUT ? "timed_out"
                                           : "other";
}
int32_t nexar_status_class(nexar_status s) {
    return s >= 0 ? 0 : s > -20 ? 1 : s > -30 ? 2 : s > -40 || s == -42 ? 3 : s > -60 ? 4 : 5;
}

void nexar_session_options_init(nexar_session_options* o, size_t size) {
    memset(o, 0, size);
    o->struct_size = sizeof *o;
    o->slots = 256;
}
nexar_status nexar_session_open(const nexar_session_options* o, nexar_session** out) {
    if (o->struct_size != sizeof *o) abort();
    if (o->socket_path && strcmp(o->socket_path, "/nowhere") == 0)
        return fail(NEXAR_ERR_NOT_FOUND, "session_open", -1, "nobody listens at /nowhere");
    ++fake_open_sessions;
    *out = (nexar_session*)&session_object;
    return NEXAR_OK;
}
nexar_status nexar_session_close(nexar_session* s) {
    if (s != (nexar_session*)&session_object) abort();
    --fake_open_sessions;
    return NEXAR_OK;
}
nexar_status nexar_session_node(nexar_session* s, char* text, size_t size) {
    (void)s;
    snprintf(text, size, "%064d", 5);
    return NEXAR_OK;
}
nexar_status nexar_alloc(nexar_session* s, uint64_t bytes, void** out) {
    (void)s;
    *out = calloc(1, bytes);
    ++fake_memories;
    return NEXAR_OK;
}
nexar_status nexar_free(nexar_session* s, void* memory) {
    (void)s;
    if (fake_open_sessions == 0) abort(); /* the session must outlive its memory */
    free(memory);
    --fake_memories;
    return NEXAR_OK;
}

void nexar_group_options_init(nexar_group_options* o, size_t size) {
    memset(o, 0, size);
    o->struct_size = sizeof *o;
    o->timeout_ms = o->collective_timeout_ms = -1;
}
nexar_status nexar_group_open(nexar_session* s, const nexar_group_options* o, nexar_group** out) {
    (void)s;
    if (fake_next == INTERRUPTS) {
        fake_next = SUCCEEDS;
        ++fake_interrupts;
        return fail(NEXAR_ERR_INTERRUPTED, "group_open", -1, "a signal");
    }
    if (o) {
        fake_group_options = *o;
        fake_group_options.name = strdup(o->name ? o->name : "");
    }
    ++fake_open_groups;
    *out = (nexar_group*)&group_object;
    return NEXAR_OK;
}
nexar_status nexar_group_free(nexar_group* g) {
    (void)g;
    --fake_open_groups;
    return NEXAR_OK;
}
nexar_status nexar_group_rank(nexar_group* g, uint32_t* rank) {
    (void)g;
    *rank = RANK;
    return NEXAR_OK;
}
nexar_status nexar_group_size(nexar_group* g, uint32_t* size) {
    (void)g;
    *size = SIZE;
    return NEXAR_OK;
}
nexar_status nexar_group_node(nexar_group* g, uint32_t rank, char* text, size_t size) {
    (void)g;
    snprintf(text, size, "%064u", rank);
    return NEXAR_OK;
}

/* Every operation: done at once, refused, or left pending. */
static nexar_status start(const char* op, nexar_request* request) {
    const int what = fake_next;
    fake_next = SUCCEEDS;
    if (what == START_FAILS) return fail(NEXAR_ERR_INVALID_ARGUMENT, op, -1, "refused");
    memset(&completed, 0, sizeof completed);
    completed.source = NEXAR_ANY_SOURCE;
    pending_status = what == LOSES_RANK ? NEXAR_ERR_PEER_LOST : what == NEVER_ENDS ? NEXAR_PENDING : NEXAR_OK;
    ++fake_open_requests;
    *request = 77;
    return NEXAR_OK;
}
nexar_status nexar_all_reduce_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                    nexar_dtype dtype, nexar_reduce_op op, nexar_request* request) {
    (void)g;
    if (dtype == NEXAR_F32 && op == NEXAR_SUM)
        for (uint64_t i = 0; i < count; ++i) ((float*)out)[i] = 3 * ((const float*)in)[i];
    return start("all_reduce", request);
}
nexar_status nexar_reduce_start(nexar_group* g, const void* in, void* out, uint64_t count, nexar_dtype dtype,
                                nexar_reduce_op op, uint32_t root, nexar_request* request) {
    if ((root == RANK) != (out != NULL)) abort();
    return out ? nexar_all_reduce_start(g, in, out, count, dtype, op, request) : start("reduce", request);
}
nexar_status nexar_broadcast_start(nexar_group* g, void* data, uint64_t count, nexar_dtype dtype,
                                   uint32_t root, nexar_request* request) {
    (void)g;
    if (root != RANK) memset(data, 7, count * (dtype == NEXAR_U8 ? 1 : 4));
    return start("broadcast", request);
}
nexar_status nexar_all_gather_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                    nexar_dtype dtype, nexar_request* request) {
    (void)g;
    if (dtype != NEXAR_U64) abort();
    for (uint64_t i = 0; i < SIZE * count; ++i)
        ((uint64_t*)out)[i] = ((const uint64_t*)in)[i % count] + i / count;
    return start("all_gather", request);
}
nexar_status nexar_reduce_scatter_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                        nexar_dtype dtype, nexar_reduce_op op, nexar_request* request) {
    (void)g;
    if (dtype != NEXAR_F64 || op != NEXAR_MAX) abort();
    memmove(out, (const double*)in + RANK * count, count * sizeof(double));
    return start("reduce_scatter", request);
}
nexar_status nexar_barrier_start(nexar_group* g, nexar_request* request) {
    (void)g;
    return start("barrier", request);
}
nexar_status nexar_send_start(nexar_group* g, const void* data, uint64_t count, nexar_dtype dtype,
                              uint32_t to, uint64_t tag, nexar_request* request) {
    (void)g;
    if (((const int32_t*)data)[count - 1] != 42 || dtype != NEXAR_I32 || to != 2 || tag != 1ull << 40)
        abort();
    return start("send", request);
}
nexar_status nexar_recv_start(nexar_group* g, void* data, uint64_t count, nexar_dtype dtype, uint32_t from,
                              uint64_t tag, nexar_request* request) {
    (void)g;
    if (dtype != NEXAR_I32 || from != NEXAR_ANY_SOURCE || tag != NEXAR_ANY_TAG) abort();
    for (uint64_t i = 0; i + 1 < count; ++i)
        ((int32_t*)data)[i] = 10 + (int32_t)i; /* one shorter than the room */
    nexar_status status = start("recv", request);
    completed.bytes = (count - 1) * 4;
    completed.source = SOURCE;
    completed.tag = TAG;
    return status;
}

nexar_status nexar_test(nexar_request request, nexar_completion* c) {
    if (request != 77 || fake_open_requests != 1)
        return fail(NEXAR_ERR_BAD_HANDLE, "test", -1, "no such request");
    if (c->struct_size != sizeof *c) abort();
    const uint32_t size = c->struct_size;
    *c = completed;
    c->struct_size = size;
    c->status = pending_status;
    if (pending_status == NEXAR_ERR_PEER_LOST)
        return fail(pending_status, "all_reduce", 2, "its process ended");
    return pending_status == NEXAR_ERR_CANCELLED ? fail(pending_status, "all_reduce", -1, "cancelled")
                                                 : pending_status;
}
nexar_status nexar_wait(nexar_request request, int64_t timeout_ms, nexar_completion* c) {
    if (pending_status == NEXAR_PENDING && poll(NULL, 0, (int)timeout_ms) < 0 && errno == EINTR) {
        nexar_test(request, c);
        ++fake_interrupts;
        return fail(NEXAR_ERR_INTERRUPTED, "wait", -1, "a signal");
    }
    const nexar_status status = nexar_test(request, c);
    return status == NEXAR_PENDING ? fail(NEXAR_ERR_TIMED_OUT, "wait", -1, "still pending") : status;
}
nexar_status nexar_cancel(nexar_request request) {
    (void)request;
    ++fake_cancels;
    if (pending_status == NEXAR_PENDING) pending_status = NEXAR_ERR_CANCELLED;
    return NEXAR_OK;
}
nexar_status nexar_request_free(nexar_request request) {
    if (request != 77 || pending_status == NEXAR_PENDING) abort();
    --fake_open_requests;
    ++fake_frees;
    return NEXAR_OK;
}
