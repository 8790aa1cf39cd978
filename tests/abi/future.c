/* A program of a later 0.2.x (future.h), and one of an earlier with shorter structs, with today's library:
 * what it does not know is as before while it is zero, refused by the struct's name and the byte where it is
 * not, and zeroed in what the library fills in.
 *
 *     abi_future             what needs no daemon
 *     abi_future daemon      also the rest, as the only rank of a group
 */
#include "future.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int wrong;

static void complain(int line, const char* what) {
    nexar_error error = NEXAR_ERROR_INIT;
    (void)!nexar_last_error(&error);
    printf("line %d: not so: %s (last error %s: %s)\n", line, what, nexar_status_name(error.code),
           error.text);
    wrong = 1;
}
#define EXPECT(condition) \
    if (!(condition)) complain(__LINE__, #condition)

/* The last call was refused because of byte `at` of the struct. */
static int refused(nexar_status status, const char* structure, size_t at) {
    nexar_error error = NEXAR_ERROR_INIT;
    char byte[32];
    snprintf(byte, sizeof byte, "byte %zu", at);
    return (status == NEXAR_ERR_INVALID_ARGUMENT || status == NEXAR_ERR_UNSUPPORTED) &&
           nexar_last_error(&error) == NEXAR_OK && error.code == status && strstr(error.text, structure) &&
           strstr(error.text, byte);
}

static int zero(const void* memory, size_t from, size_t to) {
    const unsigned char* bytes = (const unsigned char*)memory;
    for (; from < to; ++from)
        if (bytes[from] != 0) return 0;
    return 1;
}

static int still(const void* memory, int value, size_t from, size_t to) {
    const unsigned char* bytes = (const unsigned char*)memory;
    for (; from < to; ++from)
        if (bytes[from] != value) return 0;
    return 1;
}

/* For every byte that this library does not know: the call that uses the struct, with 1 in it, is refused. */
#define REFUSES_TAIL(object, now_type, call)                              \
    for (size_t tail = sizeof(now_type); tail < sizeof(object); ++tail) { \
        ((unsigned char*)&(object))[tail] = 1;                            \
        EXPECT(refused((call), #now_type, tail));                         \
        ((unsigned char*)&(object))[tail] = 0;                            \
    }

static void initialised(void) {
    future_op_options op;
    future_group_options group;
    memset(&op, 77, sizeof op);
    memset(&group, 77, sizeof group);
    nexar_op_options_init(&op.now, sizeof op);
    nexar_group_options_init(&group.now, sizeof group);
    EXPECT(op.now.timeout_ms == NEXAR_TIMEOUT_DEFAULT && op.now.struct_size == sizeof op);
    EXPECT(zero(&op, sizeof op.now, sizeof op));
    EXPECT(group.now.rank == NEXAR_RANK_AUTO && zero(&group, sizeof group.now, sizeof group));
}

static void session_options(void) {
    future_session_options options;
    nexar_session* session = NULL;
    memset(&options, 0, sizeof options);
    nexar_session_options_init(&options.now, sizeof options);
    options.now.socket_path = "/nonexistent/nexard.sock";
    EXPECT(nexar_session_open(&options.now, &session) == NEXAR_ERR_NOT_FOUND);
    REFUSES_TAIL(options, nexar_session_options, nexar_session_open(&options.now, &session));
    options.now.struct_size = 0;
    EXPECT(nexar_session_open(&options.now, &session) == NEXAR_ERR_INVALID_ARGUMENT);
    options.now.struct_size = 16; /* up to and with socket_path: the rest has its defaults */
    memset((char*)&options + 16, 77, sizeof options - 16);
    EXPECT(nexar_session_open(&options.now, &session) == NEXAR_ERR_NOT_FOUND);
}

static void errors(void) {
    future_error error;
    nexar_session* session = NULL;
    EXPECT(nexar_session_open(NULL, NULL) == NEXAR_ERR_INVALID_ARGUMENT);
    (void)session;
    memset(&error, 77, sizeof error);
    error.now.struct_size = sizeof error;
    EXPECT(nexar_last_error(&error.now) == NEXAR_OK && error.now.code == NEXAR_ERR_INVALID_ARGUMENT);
    EXPECT(zero(&error, sizeof error.now, sizeof error));
    EXPECT(zero(&error, offsetof(nexar_error, reserved_text), sizeof error.now) && error.now.reserved == 0);
    memset(&error, 77, sizeof error);
    error.now.struct_size = 32; /* up to and with other_rank */
    EXPECT(nexar_last_error(&error.now) == NEXAR_OK && error.now.other_rank == -1);
    EXPECT(error.now.struct_size == 32 && still(&error, 77, 32, sizeof error));
    error.now.struct_size = 4;
    EXPECT(nexar_last_error(&error.now) == NEXAR_ERR_INVALID_ARGUMENT);
}

/* ---- With a daemon, as the only rank of a group ---- */

static nexar_session* session;
static nexar_group* group;

static void opens(void) {
    future_group_options options;
    nexar_request request = 0;
    EXPECT(nexar_session_open(NULL, &session) == NEXAR_OK);
    nexar_group_options_init(&options.now, sizeof options);
    options.now.size = 1;
    options.now.rank = 0;
    options.now.name = "future";
    REFUSES_TAIL(options, nexar_group_options, nexar_group_open(session, &options.now, &group));
    REFUSES_TAIL(options, nexar_group_options, nexar_group_open_start(session, &options.now, &request));
    options.now.flags = 4;
    EXPECT(nexar_group_open(session, &options.now, &group) == NEXAR_ERR_INVALID_ARGUMENT);
    options.now.flags = 0;
    options.now.on_failure = 1;
    EXPECT(nexar_group_open(session, &options.now, &group) == NEXAR_ERR_UNSUPPORTED);
    options.now.on_failure = NEXAR_ON_FAILURE_ABORT;
    EXPECT(nexar_group_open(session, &options.now, &group) == NEXAR_OK);
}

static void operations(void) {
    future_op_options options;
    nexar_request request = 0;
    float x[2] = {1, 2}, y[2] = {0, 0};
    nexar_op_options_init(&options.now, sizeof options);
    EXPECT(nexar_all_reduce(group, x, y, 2, NEXAR_F32, NEXAR_SUM, &options.now) == NEXAR_OK && y[1] == 2);
    REFUSES_TAIL(options, nexar_op_options,
                 nexar_all_reduce(group, x, y, 2, NEXAR_F32, NEXAR_SUM, &options.now));
    REFUSES_TAIL(options, nexar_op_options, nexar_barrier(group, &options.now));
    REFUSES_TAIL(options, nexar_op_options, nexar_barrier_start(group, &options.now, &request));
    REFUSES_TAIL(options, nexar_op_options,
                 nexar_recv_start(group, x, 2, NEXAR_F32, 0, 5, &options.now, &request));
    options.now.flags = 4;
    EXPECT(nexar_status_class(nexar_barrier(group, &options.now)) == NEXAR_CLASS_CALL);
    options.now.flags = 0;
    options.now.priority = NEXAR_PRIORITY_BULK;
    EXPECT(nexar_barrier(group, &options.now) == NEXAR_OK);
    options.now.priority = NEXAR_PRIORITY_BULK + 1;
    EXPECT(nexar_barrier(group, &options.now) == NEXAR_ERR_INVALID_ARGUMENT);
    options.now.struct_size =
        8; /* no more than the priority: the rest has its defaults, whatever stands there */
    options.now.priority = NEXAR_PRIORITY_DEFAULT;
    options.now.match_id = options.now.timeout_ms = 0; /* which a collective would refuse */
    EXPECT(nexar_barrier(group, &options.now) == NEXAR_OK);
    options.now.struct_size = 0;
    EXPECT(nexar_barrier(group, &options.now) == NEXAR_ERR_INVALID_ARGUMENT);
}

static void results(void) {
    future_completion ends[3];
    future_session_stats stats;
    future_op_options options;
    nexar_request requests[2] = {0, 0};
    uint64_t count = 0;
    memset(ends, 77, sizeof ends);
    nexar_op_options_init(&options.now, sizeof options);
    for (uint64_t i = 0; i < 2; ++i) {
        options.now.user_data = 100 + i;
        EXPECT(nexar_barrier_start(group, &options.now, &requests[i]) == NEXAR_OK);
    }
    ends[0].now.struct_size = ends[1].now.struct_size = sizeof *ends;
    EXPECT(nexar_request_wait_all(requests, 2, 5000, &ends[0].now, sizeof *ends) == NEXAR_OK);
    for (uint64_t i = 0; i < 2; ++i) {
        EXPECT(ends[i].now.status == NEXAR_OK && ends[i].now.user_data == 100 + i);
        EXPECT(ends[i].now.request == requests[i] && ends[i].now.group == group);
        EXPECT(zero(&ends[i], sizeof(nexar_completion), sizeof *ends));
    }
    EXPECT(still(&ends[2], 77, 0, sizeof *ends));

    memset(ends, 77, sizeof ends);
    EXPECT(nexar_session_poll(session, &ends[0].now, sizeof *ends, 3, &count) == NEXAR_OK && count == 2);
    for (uint64_t i = 0; i < count; ++i) EXPECT(zero(&ends[i], sizeof(nexar_completion), sizeof *ends));
    EXPECT(still(&ends[2], 77, 0, sizeof *ends));

    memset(ends, 77, sizeof ends);
    ends[0].now.struct_size = 8; /* an older program: no more than the status */
    EXPECT(nexar_request_test(requests[0], &ends[0].now) == NEXAR_OK && ends[0].now.status == NEXAR_OK);
    EXPECT(still(ends, 77, 8, sizeof ends));
    ends[0].now.struct_size = 0; /* [U4] 0.1.0 returned OK and wrote nothing */
    EXPECT(nexar_request_test(requests[0], &ends[0].now) == NEXAR_ERR_INVALID_ARGUMENT);

    memset(&stats, 77, sizeof stats);
    stats.now.struct_size = sizeof stats;
    EXPECT(nexar_session_stats_get(session, &stats.now) == NEXAR_OK && stats.now.operations >= 2 &&
           stats.calls == 0);
    for (int i = 0; i < 2; ++i) EXPECT(nexar_request_free(requests[i]) == NEXAR_OK);
}

static void memory(void) {
    future_alloc_options options;
    void* at = NULL;
    memset(&options, 0, sizeof options);
    nexar_alloc_options_init(&options.now, sizeof options);
    EXPECT(nexar_alloc(session, 100, &options.now, &at) == NEXAR_OK && nexar_free(session, at) == NEXAR_OK);
    REFUSES_TAIL(options, nexar_alloc_options, nexar_alloc(session, 100, &options.now, &at));
    options.now.flags = UINT64_C(1) << 40;
    EXPECT(nexar_status_class(nexar_alloc(session, 100, &options.now, &at)) == NEXAR_CLASS_CALL);
}

int main(int argc, char** argv) {
    initialised();
    session_options();
    errors();
    if (argc > 1 && strcmp(argv[1], "daemon") == 0) {
        opens();
        if (wrong) return 1;
        operations();
        results();
        memory();
        EXPECT(nexar_group_free(group) == NEXAR_OK && nexar_session_close(session) == NEXAR_OK);
    }
    if (!wrong) printf("all as it should be\n");
    return wrong;
}
