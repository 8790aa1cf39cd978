/* A libnexar_c of one process, for binding_test.py: rank 1 of 3, whose fellows do what fake_next says.
 * Compiled against nexar.h, so that a signature or struct that bindings/python has wrong shows. */
#include "fake_nexar.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCE = 2, TAG = 9, SLOTS = 16 };
enum { SUCCEEDS, START_FAILS, LOSES_RANK, NEVER_ENDS };

NEXAR_API int fake_next;       /* what the next operation or opening does */
NEXAR_API int fake_then;       /* and the one after it */
NEXAR_API int fake_interrupts; /* signals that ended a wait */
NEXAR_API int fake_cancels, fake_frees, fake_open_requests, fake_open_sessions, fake_open_groups,
    fake_memories, fake_registered;
NEXAR_API int (*fake_holds_lock)(void); /* Python's PyGILState_Check */
NEXAR_API int fake_raises;              /* a signal, in the next start */
NEXAR_API int fake_held; /* in the last start or wait: whether it held the interpreter's lock */
NEXAR_API nexar_group_options fake_group_options;
NEXAR_API nexar_op_options fake_op_options; /* of the last operation */
NEXAR_API char fake_scalar[16];             /* so many bytes of its scalar */
NEXAR_API int fake_scalar_bytes;
NEXAR_API nexar_alloc_options fake_alloc_options; /* of the last allocation */

static nexar_error last = NEXAR_ERROR_INIT;
static struct {
    int used, reported;
    int64_t timeout_ms;
    nexar_completion end;
} slots[SLOTS]; /* request n is slot n - 70 */
static char session_object;
char group_objects[1 << 16];

nexar_status fail(nexar_status code, const char* op, int64_t rank, const char* text) {
    last = (nexar_error)NEXAR_ERROR_INIT;
    last.code = code;
    last.rank = rank;
    snprintf(last.op, sizeof last.op, "%s", op);
    snprintf(last.text, sizeof last.text, "%s", text);
    if (rank < 0) return code;
    memset(last.node, 'a', 64);
    snprintf(last.host, sizeof last.host, "gpu7");
    snprintf(last.group, sizeof last.group, "train");
    last.pid = 77;
    last.epoch = 1;
    last.sequence = 17;
    last.system_errno = EIO;
    last.lost_count = 2;
    last.lost_ranks[0] = 0;
    last.lost_ranks[1] = (uint32_t)rank;
    return code;
}

nexar_status nexar_last_error(nexar_error* error) {
    if (error->struct_size != sizeof last) return NEXAR_ERR_INVALID_ARGUMENT;
    *error = last;
    return NEXAR_OK;
}
nexar_status nexar_error_line(const nexar_error* error, char* text, uint64_t size, uint64_t* length) {
    if (error->struct_size != sizeof last || length) abort();
    snprintf(text, size, "%s: %s: %s", error->op, nexar_status_name(error->code), error->text);
    return NEXAR_OK;
}
const char* nexar_status_name(nexar_status status) {
    return status == NEXAR_OK              ? "ok"
           : status == NEXAR_ERR_PEER_LOST ? "peer_lost"
           : status == NEXAR_ERR_TIMED_OUT ? "timed_out"
                                           : "other";
}
int32_t nexar_status_class(nexar_status s) {
    return s < 0 ? -s / 100 : 0;
}
uint64_t nexar_dtype_size(nexar_dtype dtype) {
    return dtype == NEXAR_I32 ? 4 : 8; /* of the types that are received here */
}
uint32_t nexar_version(void) {
    return NEXAR_VERSION_MAJOR << 16 | NEXAR_VERSION_MINOR << 8;
}
const char* nexar_version_text(void) {
    return "0.2.fake";
}

void nexar_session_options_init(nexar_session_options* o, uint64_t size) {
    if (size != sizeof *o) abort();
    *o = (nexar_session_options)NEXAR_SESSION_OPTIONS_INIT;
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
nexar_status nexar_session_node(nexar_session* s, char* text, uint64_t size) {
    (void)s;
    snprintf(text, size, "%064d", 5);
    return NEXAR_OK;
}
nexar_status nexar_session_fd(nexar_session* s, int* fd) {
    return *fd = 44, s ? NEXAR_OK : NEXAR_ERR_BAD_HANDLE;
}
nexar_status nexar_session_stats_get(nexar_session* s, nexar_session_stats* stats) {
    (void)s;
    if (stats->struct_size != sizeof *stats) abort();
    stats->operations = 6;
    stats->waits_slept = 9;
    return NEXAR_OK;
}
nexar_status nexar_session_poll(nexar_session* s, nexar_completion* ended, uint64_t stride, uint64_t capacity,
                                uint64_t* count) {
    (void)s;
    if (stride != sizeof *ended) abort();
    *count = 0;
    for (int i = 0; i < SLOTS && *count < capacity; ++i) {
        if (!slots[i].used || slots[i].reported || slots[i].end.status == NEXAR_PENDING) continue;
        slots[i].reported = 1;
        ended[(*count)++] = slots[i].end;
    }
    return NEXAR_OK;
}
void nexar_alloc_options_init(nexar_alloc_options* o, uint64_t size) {
    if (size != sizeof *o) abort();
    *o = (nexar_alloc_options)NEXAR_ALLOC_OPTIONS_INIT;
}
nexar_status nexar_alloc(nexar_session* s, uint64_t bytes, const nexar_alloc_options* o, void** out) {
    (void)s;
    fake_alloc_options = *o;
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
nexar_status nexar_register_memfd(nexar_session* s, void* address, uint64_t bytes, int fd, uint64_t offset) {
    (void)s;
    (void)address;
    if (bytes != 32 || fd != 6 || offset != 4096) abort();
    ++fake_registered;
    return NEXAR_OK;
}
nexar_status nexar_unregister(nexar_session* s, void* address) {
    return --fake_registered, s && address ? NEXAR_OK : NEXAR_ERR_BAD_HANDLE;
}

void nexar_group_options_init(nexar_group_options* o, uint64_t size) {
    if (size != sizeof *o) abort();
    *o = (nexar_group_options)NEXAR_GROUP_OPTIONS_INIT;
}
nexar_status nexar_group_options_from_env(nexar_group_options* o, uint64_t size) {
    nexar_group_options_init(o, size);
    if (getenv("NEXAR_BARRIER_TIMEOUT_SECS") && strcmp(getenv("NEXAR_BARRIER_TIMEOUT_SECS"), "0") != 0)
        return fail(NEXAR_ERR_INVALID_ARGUMENT, "group_options_from_env", -1, "no number of seconds");
    if (!getenv("NEXAR_RANK")) {
        o->name = getenv("NEXAR_GROUP");
        if (getenv("NEXAR_BARRIER_TIMEOUT_SECS")) o->barrier_timeout_ms = NEXAR_TIMEOUT_NONE;
        return fail(NEXAR_ERR_NOT_FOUND, "group_options_from_env", -1, "no rank");
    }
    o->size = SIZE;
    o->rank = RANK;
    o->name = "environment";
    o->job_secret = "secret";
    return NEXAR_OK;
}
NEXAR_API char fake_reason[512]; /* of the last abort */
nexar_status nexar_group_abort(nexar_group* g, const char* reason) {
    snprintf(fake_reason, sizeof fake_reason, "%s", reason);
    return nexar_group_free(g);
}
nexar_status nexar_group_free(nexar_group* g) {
    (void)g;
    --fake_open_groups;
    return NEXAR_OK;
}
nexar_status nexar_group_rank(nexar_group* g, uint32_t* rank) {
    return *rank = RANK, g ? NEXAR_OK : NEXAR_ERR_BAD_HANDLE;
}
nexar_status nexar_group_size(nexar_group* g, uint32_t* size) {
    return *size = SIZE, g ? NEXAR_OK : NEXAR_ERR_BAD_HANDLE;
}
nexar_status nexar_group_epoch(nexar_group* g, uint32_t* epoch) {
    return *epoch = 1, g ? NEXAR_OK : NEXAR_ERR_BAD_HANDLE;
}
nexar_status nexar_group_node(nexar_group* g, uint32_t rank, char* text, uint64_t size) {
    (void)g;
    snprintf(text, size, "%064u", rank);
    return NEXAR_OK;
}

/* Every operation: done at once, refused, or left pending. */
static nexar_status start_with(const char* op, uint64_t user_data, nexar_completion end,
                               nexar_request* request) {
    const int what = fake_next;
    int slot = 0;
    if (fake_holds_lock) fake_held = fake_holds_lock();
    if (fake_raises) raise(fake_raises), fake_raises = 0;
    fake_next = fake_then;
    fake_then = SUCCEEDS;
    if (what == START_FAILS) return fail(NEXAR_ERR_INVALID_ARGUMENT, op, -1, "refused");
    while (slots[slot].used)
        if (++slot == SLOTS) abort();
    end.status = what == LOSES_RANK ? NEXAR_ERR_PEER_LOST : what == NEVER_ENDS ? NEXAR_PENDING : NEXAR_OK;
    end.request = *request = 70 + (uint64_t)slot;
    end.user_data = user_data;
    slots[slot].end = end;
    slots[slot].used = 1;
    slots[slot].reported = 0;
    slots[slot].timeout_ms = -1;
    ++fake_open_requests;
    return NEXAR_OK;
}
static nexar_status start(const char* op, nexar_group* g, const nexar_op_options* o, nexar_request* request) {
    nexar_completion end = NEXAR_COMPLETION_INIT;
    end.group = g;
    end.epoch = 1;
    end.sequence = 3;
    const nexar_op_options defaults = NEXAR_OP_OPTIONS_INIT;
    if (!o) o = &defaults;
    if (o->struct_size != sizeof *o) abort();
    fake_op_options = *o;
    if (o->scalar) memcpy(fake_scalar, o->scalar, (size_t)fake_scalar_bytes);
    const nexar_status status = start_with(op, o->user_data, end, request);
    if (status == NEXAR_OK) slots[*request - 70].timeout_ms = o->timeout_ms;
    return status;
}
void nexar_op_options_init(nexar_op_options* o, uint64_t size) {
    if (size != sizeof *o) abort();
    *o = (nexar_op_options)NEXAR_OP_OPTIONS_INIT;
}
static unsigned opened;
nexar_status nexar_group_open_start(nexar_session* s, const nexar_group_options* o, nexar_request* request) {
    nexar_completion end = NEXAR_COMPLETION_INIT;
    (void)s;
    if (o->struct_size != sizeof *o) abort();
    fake_group_options = *o;
    fake_group_options.name = strdup(o->name ? o->name : "");
    fake_group_options.job_secret = strdup(o->job_secret ? o->job_secret : "");
    if (fake_next == SUCCEEDS) ++fake_open_groups;
    end.group = (nexar_group*)&group_objects[opened++ % sizeof group_objects];
    end.epoch = 1;
    return start_with("group_open", o->user_data, end, request);
}
NEXAR_API nexar_child_options fake_child_options; /* of the last child */
NEXAR_API uint32_t fake_colour;
NEXAR_API int64_t fake_key;
void nexar_child_options_init(nexar_child_options* o, uint64_t size) {
    if (size != sizeof *o) abort();
    *o = (nexar_child_options)NEXAR_CHILD_OPTIONS_INIT;
}
nexar_status nexar_group_split_start(nexar_group* g, uint32_t colour, int64_t key,
                                     const nexar_child_options* o, nexar_request* request) {
    nexar_completion end = NEXAR_COMPLETION_INIT;
    if (o->struct_size != sizeof *o || !g) abort();
    fake_child_options = *o;
    fake_colour = colour;
    fake_key = key;
    end.epoch = 1;
    end.sequence = 4;
    if (colour != NEXAR_COLOUR_UNDEFINED) {
        if (fake_next == SUCCEEDS) ++fake_open_groups;
        end.group = (nexar_group*)&group_objects[opened++ % sizeof group_objects];
    }
    return start_with("group_split", o->user_data, end, request);
}
nexar_status nexar_group_dup_start(nexar_group* g, const nexar_child_options* o, nexar_request* request) {
    return nexar_group_split_start(g, 0, 0, o, request);
}
NEXAR_API nexar_create_options fake_create_options; /* of the last one */
NEXAR_API uint32_t fake_listed[4];
void nexar_create_options_init(nexar_create_options* o, uint64_t size) {
    if (size != sizeof *o) abort();
    *o = (nexar_create_options)NEXAR_CREATE_OPTIONS_INIT;
}
nexar_status nexar_group_create_start(nexar_group* g, const uint32_t* ranks, uint64_t count,
                                      const nexar_create_options* o, nexar_request* request) {
    nexar_completion end = NEXAR_COMPLETION_INIT;
    if (o->struct_size != sizeof *o || !g) abort();
    if (count > 4) return fail(NEXAR_ERR_INVALID_ARGUMENT, "group_create", -1, "too many");
    fake_create_options = *o;
    memcpy(fake_listed, ranks, count * sizeof *ranks);
    end.epoch = 1;
    if (fake_next == SUCCEEDS) ++fake_open_groups;
    end.group = (nexar_group*)&group_objects[opened++ % sizeof group_objects];
    return start_with("group_create", o->user_data, end, request);
}
nexar_status nexar_all_reduce_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                    nexar_dtype dtype, nexar_reduce_op op, const nexar_op_options* o,
                                    nexar_request* request) {
    if (dtype == NEXAR_F32 && op == NEXAR_SUM)
        for (uint64_t i = 0; i < count; ++i) ((float*)out)[i] = 3 * ((const float*)in)[i];
    return start("all_reduce", g, o, request);
}
nexar_status nexar_reduce_start(nexar_group* g, const void* in, void* out, uint64_t count, nexar_dtype dtype,
                                nexar_reduce_op op, uint32_t root, const nexar_op_options* o,
                                nexar_request* request) {
    if ((root == RANK) != (out != NULL)) abort();
    return out ? nexar_all_reduce_start(g, in, out, count, dtype, op, o, request)
               : start("reduce", g, o, request);
}
nexar_status nexar_broadcast_start(nexar_group* g, void* data, uint64_t count, nexar_dtype dtype,
                                   uint32_t root, const nexar_op_options* o, nexar_request* request) {
    if (root != RANK) memset(data, 7, count * (dtype == NEXAR_U8 ? 1 : 4));
    return start("broadcast", g, o, request);
}
nexar_status nexar_all_gather_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                    nexar_dtype dtype, const nexar_op_options* o, nexar_request* request) {
    if (dtype != NEXAR_U64) abort();
    for (uint64_t i = 0; i < SIZE * count; ++i)
        ((uint64_t*)out)[i] = ((const uint64_t*)in)[i % count] + i / count;
    return start("all_gather", g, o, request);
}
nexar_status nexar_reduce_scatter_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                        nexar_dtype dtype, nexar_reduce_op op, const nexar_op_options* o,
                                        nexar_request* request) {
    if (dtype != NEXAR_F64 || op != NEXAR_MAX) abort();
    memmove(out, (const double*)in + RANK * count, count * sizeof(double));
    return start("reduce_scatter", g, o, request);
}
nexar_status nexar_reduce_scatterv_start(nexar_group* g, const void* in, void* out, const uint64_t* counts,
                                         nexar_dtype dtype, nexar_reduce_op op, const nexar_op_options* o,
                                         nexar_request* request) {
    if (dtype != NEXAR_F64 || op != NEXAR_MAX) abort();
    memmove(out, (const double*)in + counts[0], counts[RANK] * sizeof(double));
    return start("reduce_scatterv", g, o, request);
}
nexar_status nexar_all_to_all_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                    nexar_dtype dtype, const nexar_op_options* o, nexar_request* request) {
    if (dtype != NEXAR_I16) abort();
    for (uint64_t i = 0; i < SIZE * count; ++i) /* what all ranks would send to RANK, had they the same */
        ((int16_t*)out)[i] = ((const int16_t*)in)[RANK * count + i % count];
    return start("all_to_all", g, o, request);
}
nexar_status nexar_all_gatherv_start(nexar_group* g, const void* in, void* out, const uint64_t* counts,
                                     nexar_dtype dtype, const nexar_op_options* o, nexar_request* request) {
    if (dtype != NEXAR_F64) abort();
    for (uint64_t i = 0; i < counts[0]; ++i) ((double*)out)[i] = 100;
    memmove((double*)out + counts[0], in, counts[RANK] * sizeof(double));
    for (uint64_t i = 0; i < counts[2]; ++i) ((double*)out)[counts[0] + counts[1] + i] = 102;
    return start("all_gatherv", g, o, request);
}
nexar_status nexar_gatherv_start(nexar_group* g, const void* in, void* out, const uint64_t* counts,
                                 nexar_dtype dtype, uint32_t root, const nexar_op_options* o,
                                 nexar_request* request) {
    if ((root == RANK) != (out != NULL)) abort();
    return out ? nexar_all_gatherv_start(g, in, out, counts, dtype, o, request)
               : start("gatherv", g, o, request);
}
nexar_status nexar_all_to_allv_start(nexar_group* g, const void* in, const uint64_t* send_counts, void* out,
                                     const uint64_t* receive_counts, nexar_dtype dtype,
                                     const nexar_op_options* o, nexar_request* request) {
    if (dtype != NEXAR_F64) abort();
    double* to = out;
    for (int rank = 0; rank < SIZE; ++rank)
        for (uint64_t i = 0; i < receive_counts[rank]; ++i) *to++ = 100 * rank;
    for (uint64_t i = 0; i < send_counts[RANK]; ++i) /* to itself */
        ((double*)out)[receive_counts[0] + i] = ((const double*)in)[send_counts[0] + i];
    return start("all_to_allv", g, o, request);
}
nexar_status nexar_gather_start(nexar_group* g, const void* in, void* out, uint64_t count, nexar_dtype dtype,
                                uint32_t root, const nexar_op_options* o, nexar_request* request) {
    if ((root == RANK) != (out != NULL)) abort();
    return out ? nexar_all_gather_start(g, in, out, count, dtype, o, request)
               : start("gather", g, o, request);
}
nexar_status nexar_scatter_start(nexar_group* g, const void* in, void* out, uint64_t count, nexar_dtype dtype,
                                 uint32_t root, const nexar_op_options* o, nexar_request* request) {
    if ((root == RANK) != (in != NULL) || dtype != NEXAR_F64) abort();
    if (in)
        memmove(out, (const double*)in + RANK * count, count * sizeof(double));
    else
        for (uint64_t i = 0; i < count; ++i) ((double*)out)[i] = (double)i + 100 * root;
    return start("scatter", g, o, request);
}
nexar_status nexar_scatterv_start(nexar_group* g, const void* in, void* out, const uint64_t* counts,
                                  nexar_dtype dtype, uint32_t root, const nexar_op_options* o,
                                  nexar_request* request) {
    if ((root == RANK) != (in != NULL) || dtype != NEXAR_F64) abort();
    if (in)
        memmove(out, (const double*)in + counts[0], counts[RANK] * sizeof(double));
    else
        for (uint64_t i = 0; i < counts[RANK]; ++i) ((double*)out)[i] = (double)i + 100 * root;
    return start("scatterv", g, o, request);
}
nexar_status nexar_scan_start(nexar_group* g, const void* in, void* out, uint64_t count, nexar_dtype dtype,
                              nexar_reduce_op op, const nexar_op_options* o, nexar_request* request) {
    if (dtype != NEXAR_I32 || op != NEXAR_SUM) abort();
    for (uint64_t i = 0; i < count; ++i) /* what all ranks would give, had they the same */
        ((int32_t*)out)[i] = (RANK + 1) * ((const int32_t*)in)[i];
    return start("scan", g, o, request);
}
nexar_status nexar_exclusive_scan_start(nexar_group* g, const void* in, void* out, uint64_t count,
                                        nexar_dtype dtype, nexar_reduce_op op, const nexar_op_options* o,
                                        nexar_request* request) {
    if (dtype != NEXAR_I32 || op != NEXAR_PROD) abort();
    memmove(out, in, count * sizeof(int32_t)); /* rank 1's product is that of rank 0 alone */
    return start("exclusive_scan", g, o, request);
}
nexar_status nexar_barrier_start(nexar_group* g, const nexar_op_options* o, nexar_request* request) {
    return start("barrier", g, o, request);
}
nexar_status nexar_send_start(nexar_group* g, const void* data, uint64_t count, nexar_dtype dtype,
                              uint32_t to, uint64_t tag, const nexar_op_options* o, nexar_request* request) {
    if (((const int32_t*)data)[count - 1] != 42 || dtype != NEXAR_I32 || to != 2 || tag != 1ull << 40)
        abort();
    return start("send", g, o, request);
}
static nexar_status receives(const char* op, uint64_t bytes, nexar_group* g, const nexar_op_options* o,
                             nexar_request* request) {
    nexar_status status = start(op, g, o, request);
    if (status != NEXAR_OK) return status;
    nexar_completion* end = &slots[*request - 70].end;
    end->bytes = bytes, end->source = SOURCE, end->tag = TAG;
    return status;
}
nexar_status nexar_recv_start(nexar_group* g, void* data, uint64_t count, nexar_dtype dtype, uint32_t from,
                              uint64_t tag, const nexar_op_options* o, nexar_request* request) {
    if (dtype != NEXAR_I32 || from != NEXAR_ANY_SOURCE || tag != NEXAR_ANY_TAG) abort();
    for (uint64_t i = 0; i + 1 < count; ++i)
        ((int32_t*)data)[i] = 10 + (int32_t)i; /* one shorter than the room */
    return receives("recv", (count - 1) * 4, g, o, request);
}
nexar_status nexar_probe_start(nexar_group* g, uint32_t from, uint64_t tag, const nexar_op_options* o,
                               nexar_request* request) {
    if (from != NEXAR_ANY_SOURCE || tag != NEXAR_ANY_TAG) abort();
    return receives("probe", 12, g, o, request);
}
/* Another thread is first, once in a while. */
NEXAR_API int fake_stolen, fake_apart; /* messages that are set apart now */
NEXAR_API uint64_t fake_freed_message;
nexar_status nexar_mprobe(nexar_group* g, uint32_t from, uint64_t tag, nexar_message* message,
                          nexar_completion* c, const nexar_op_options* o) {
    (void)g;
    if (from != NEXAR_ANY_SOURCE || tag != NEXAR_ANY_TAG || o->timeout_ms != 0) abort();
    if (c->struct_size != sizeof *c) abort();
    if (fake_stolen > 0) return --fake_stolen, fail(NEXAR_ERR_TIMED_OUT, "mprobe", -1, "none is there");
    *message = 5, ++fake_apart;
    c->bytes = 12;
    c->source = SOURCE;
    c->tag = TAG;
    return NEXAR_OK;
}
nexar_status nexar_mrecv_start(nexar_group* g, nexar_message message, void* data, uint64_t count,
                               nexar_dtype dtype, const nexar_op_options* o, nexar_request* request) {
    if (message != 5) abort();
    const nexar_status s =
        nexar_recv_start(g, data, count, dtype, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, o, request);
    return fake_apart -= s == NEXAR_OK, s;
}
nexar_status nexar_message_free(nexar_group* g, nexar_message message) {
    (void)g;
    fake_freed_message += message, --fake_apart;
    return NEXAR_OK;
}
nexar_status nexar_sendv_start(nexar_group* g, const nexar_piece* pieces, uint64_t count, nexar_dtype dtype,
                               uint32_t to, uint64_t tag, const nexar_op_options* o, nexar_request* request) {
    const nexar_piece* last_one = &pieces[count - 1];
    return nexar_send_start(g, last_one->data, last_one->count, dtype, to, tag, o, request);
}
nexar_status nexar_recvv_start(nexar_group* g, const nexar_piece* pieces, uint64_t count, nexar_dtype dtype,
                               uint32_t from, uint64_t tag, const nexar_op_options* o,
                               nexar_request* request) {
    const nexar_piece* last_one = &pieces[count - 1];
    return nexar_recv_start(g, last_one->data, last_one->count, dtype, from, tag, o, request);
}

static int slot_of(nexar_request request) {
    const int slot = (int)request - 70;
    return request >= 70 && slot < SLOTS && slots[slot].used ? slot : -1;
}
nexar_status nexar_request_test(nexar_request request, nexar_completion* c) {
    const int slot = slot_of(request);
    if (slot < 0) return fail(NEXAR_ERR_BAD_HANDLE, "request_test", -1, "no such request");
    if (c && c->struct_size != sizeof *c) abort();
    if (c) *c = slots[slot].end;
    if (fake_holds_lock) fake_held = fake_holds_lock();
    const nexar_status status = slots[slot].end.status;
    if (status == NEXAR_ERR_PEER_LOST) return fail(status, "all_reduce", 2, "its process ended");
    if (status == NEXAR_ERR_CANCELLED) return fail(status, "all_reduce", -1, "cancelled");
    return status;
}
/* An operation with a deadline that is waited for as long as that ends by it. */
nexar_status nexar_request_wait(nexar_request request, int64_t timeout_ms, nexar_completion* c) {
    if (nexar_request_test(request, c) != NEXAR_PENDING) return nexar_request_test(request, c);
    const int64_t deadline = slots[request - 70].timeout_ms;
    if (deadline > 0 && deadline <= timeout_ms) {
        poll(NULL, 0, (int)deadline);
        c->status = slots[request - 70].end.status = NEXAR_ERR_TIMED_OUT;
        return fail(NEXAR_ERR_TIMED_OUT, "barrier", 2, "rank 2 has not come");
    }
    if (poll(NULL, 0, (int)timeout_ms) < 0 && errno == EINTR) {
        ++fake_interrupts;
        return fail(NEXAR_ERR_INTERRUPTED, "request_wait", -1, "a signal");
    }
    return NEXAR_PENDING;
}
nexar_status nexar_request_wait_any(const nexar_request* requests, uint64_t count, int64_t timeout_ms,
                                    uint64_t* index, nexar_completion* c) {
    int some = 0;
    if (fake_holds_lock) fake_held = fake_holds_lock();
    for (uint64_t i = 0; i < count; ++i) {
        const int slot = slot_of(requests[i]);
        if (requests[i] == 0) continue;
        if (slot < 0) return fail(NEXAR_ERR_BAD_HANDLE, "request_wait_any", -1, "no such request");
        some = 1;
        if (slots[slot].end.status == NEXAR_PENDING) continue;
        *index = i;
        if (c) *c = slots[slot].end;
        return NEXAR_OK;
    }
    if (!some) return fail(NEXAR_ERR_INVALID_ARGUMENT, "request_wait_any", -1, "all requests are 0");
    poll(NULL, 0, (int)timeout_ms);
    return NEXAR_PENDING;
}
nexar_status nexar_request_test_any(const nexar_request* requests, uint64_t count, uint64_t* index,
                                    nexar_completion* c) {
    return nexar_request_wait_any(requests, count, 0, index, c);
}
nexar_status nexar_request_wait_some(const nexar_request* requests, uint64_t count, int64_t timeout_ms,
                                     uint64_t* indices, uint64_t* ended, nexar_completion* ends,
                                     uint64_t stride) {
    uint64_t first;
    *ended = 0;
    const nexar_status status = nexar_request_wait_any(requests, count, timeout_ms, &first, NULL);
    if (status != NEXAR_OK) return status;
    for (uint64_t i = first; i < count; ++i) {
        if (requests[i] == 0 || slots[requests[i] - 70].end.status == NEXAR_PENDING) continue;
        if (ends && stride != sizeof *ends) abort();
        if (ends) ends[*ended] = slots[requests[i] - 70].end;
        indices[(*ended)++] = i;
    }
    return NEXAR_OK;
}
nexar_status nexar_request_cancel(nexar_request request) {
    const int slot = slot_of(request);
    if (slot < 0) return fail(NEXAR_ERR_BAD_HANDLE, "request_cancel", -1, "no such request");
    ++fake_cancels;
    if (slots[slot].end.status == NEXAR_PENDING) slots[slot].end.status = NEXAR_ERR_CANCELLED;
    return NEXAR_OK;
}
nexar_status nexar_request_free(nexar_request request) {
    const int slot = slot_of(request);
    if (slot < 0) return fail(NEXAR_ERR_BAD_HANDLE, "request_free", -1, "no such request");
    if (slots[slot].end.status == NEXAR_PENDING)
        return fail(NEXAR_ERR_BAD_STATE, "request_free", -1, "still pending");
    slots[slot].used = 0;
    --fake_open_requests;
    ++fake_frees;
    return NEXAR_OK;
}

/* A persistent operation: its slot has ended until it is started. */
nexar_status nexar_all_reduce_init(nexar_group* g, const void* in, void* out, uint64_t count,
                                   nexar_dtype dtype, nexar_reduce_op op, const nexar_op_options* o,
                                   nexar_request* request) {
    return nexar_all_reduce_start(g, in, out, count, dtype, op, o, request);
}
nexar_status nexar_request_start(nexar_request request) {
    const int slot = slot_of(request), what = fake_next;
    if (slot < 0) return fail(NEXAR_ERR_BAD_HANDLE, "request_start", -1, "no such request");
    fake_next = SUCCEEDS;
    if (what == START_FAILS) return fail(NEXAR_ERR_CLOSED, "all_reduce", -1, "refused");
    slots[slot].end.status = what == LOSES_RANK   ? NEXAR_ERR_PEER_LOST
                             : what == NEVER_ENDS ? NEXAR_PENDING
                                                  : NEXAR_OK;
    slots[slot].reported = 0;
    return NEXAR_OK;
}
nexar_status nexar_request_start_all(const nexar_request* requests, uint64_t count) {
    nexar_status status = NEXAR_OK;
    for (uint64_t i = 0; i < count && status == NEXAR_OK; ++i) status = nexar_request_start(requests[i]);
    return status;
}

/* What tests with real daemons are about (integration_persistent): it is there, and refused. */
NEXAR_API nexar_status fake_unsupported(void) {
    return fail(NEXAR_ERR_UNSUPPORTED, "fake", -1, "the pretended library has none");
}
__asm__(
    ".macro without names:vararg\n.irp name, \\names\n.globl nexar_\\name\n.set nexar_\\name, "
    "fake_unsupported\n.endr\n.endm\n"
    "without reduce_init, broadcast_init, all_gather_init, all_gatherv_init, "
    "reduce_scatter_init, reduce_scatterv_init, all_to_all_init, all_to_allv_init, "
    "gather_init, gatherv_init, scatter_init, scatterv_init, scan_init, "
    "exclusive_scan_init, barrier_init, send_init, recv_init, "
    "ops_begin, ops_end, ops_drop\n");
