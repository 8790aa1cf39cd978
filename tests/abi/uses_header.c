/* Uses every kind of thing in include/nexar.h; compiled as C99, C11, C++17 and C++20 with -pedantic -Werror.
 * It is run too, without a daemon: initialisers and _init functions agree, and a session that cannot be
 * opened says so. */
#include <nexar.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define EXPECT(condition)                                          \
    do {                                                           \
        if (!(condition)) {                                        \
            printf("line %d: not so: %s\n", __LINE__, #condition); \
            return 1;                                              \
        }                                                          \
    } while (0)

/* Static initialisers. */
static nexar_error static_error = NEXAR_ERROR_INIT;
static const nexar_completion static_completion = NEXAR_COMPLETION_INIT;
static const nexar_session_options static_session_options = NEXAR_SESSION_OPTIONS_INIT;
static nexar_session_stats static_stats = NEXAR_SESSION_STATS_INIT;
static const nexar_alloc_options static_alloc_options = NEXAR_ALLOC_OPTIONS_INIT;
static const nexar_group_options static_group_options = NEXAR_GROUP_OPTIONS_INIT;
static const nexar_op_options static_op_options = NEXAR_OP_OPTIONS_INIT;

static int initialised(void) {
    nexar_session_options session;
    nexar_alloc_options alloc;
    nexar_group_options group;
    nexar_op_options op;
    memset(&session, 77, sizeof session);
    memset(&alloc, 77, sizeof alloc);
    memset(&group, 77, sizeof group);
    memset(&op, 77, sizeof op);
    nexar_session_options_init(&session, sizeof session);
    nexar_alloc_options_init(&alloc, sizeof alloc);
    nexar_group_options_init(&group, sizeof group);
    nexar_op_options_init(&op, sizeof op);
    EXPECT(memcmp(&session, &static_session_options, sizeof session) == 0);
    EXPECT(memcmp(&alloc, &static_alloc_options, sizeof alloc) == 0);
    EXPECT(memcmp(&group, &static_group_options, sizeof group) == 0);
    EXPECT(memcmp(&op, &static_op_options, sizeof op) == 0);
    EXPECT(group.rank == NEXAR_RANK_AUTO && group.timeout_ms == NEXAR_TIMEOUT_DEFAULT && group.name == NULL);
    EXPECT(session.slots == 0 && session.scratch_limit == UINT64_MAX && session.spin_us == -1);
    EXPECT(op.priority == NEXAR_PRIORITY_DEFAULT && op.match_id == 0 && alloc.flags == 0);
    EXPECT(static_completion.status == NEXAR_PENDING && static_completion.source == NEXAR_ANY_SOURCE);
    EXPECT(static_completion.sequence == NEXAR_NO_SEQUENCE && static_stats.operations == 0);
    EXPECT(static_error.rank == -1 && static_error.sequence == NEXAR_NO_SEQUENCE);
    return 0;
}

/* An _init function writes no more than `size` bytes, and says how long the struct is. */
static int initialised_shorter(void) {
    nexar_op_options op;
    memset(&op, 77, sizeof op);
    nexar_op_options_init(&op, 16);
    EXPECT(op.struct_size == 16 && op.timeout_ms == NEXAR_TIMEOUT_DEFAULT);
    EXPECT((op.match_id & 0xff) == 77);
    return 0;
}

static int without_daemon(void) {
    nexar_session_options options = NEXAR_SESSION_OPTIONS_INIT;
    nexar_error error = NEXAR_ERROR_INIT;
    nexar_completion completion = NEXAR_COMPLETION_INIT;
    nexar_session* session = NULL;
    nexar_group* group = NULL;
    nexar_request request = 0;
    char line[1000];
    uint64_t length = 0;

    EXPECT(nexar_last_error(&error) == NEXAR_OK && error.code == NEXAR_OK);
    options.socket_path = "/nonexistent/nexard.sock";
    EXPECT(nexar_session_open(&options, &session) == NEXAR_ERR_NOT_FOUND);
    EXPECT(nexar_last_error(&error) == NEXAR_OK && error.code == NEXAR_ERR_NOT_FOUND);
    EXPECT(error.error_class == NEXAR_CLASS_CALL && error.rank == -1 && error.text[0] != 0);
    EXPECT(error.sequence == NEXAR_NO_SEQUENCE && error.epoch == 0 && error.group[0] == 0);
    EXPECT(strcmp(error.op, "session_open") == 0);
    EXPECT(nexar_error_line(&error, line, sizeof line, &length) == NEXAR_OK && length == strlen(line));
    EXPECT(strstr(line, "session_open: NOT_FOUND: ") == line &&
           strstr(line, "/nonexistent/nexard.sock") != NULL);
    EXPECT(nexar_error_line(&error, line, 5, &length) == NEXAR_OK && strcmp(line, "sess") == 0 && length > 5);
    EXPECT(nexar_group_open(session, NULL, &group) == NEXAR_ERR_BAD_HANDLE);
    EXPECT(nexar_request_test(request, &completion) == NEXAR_ERR_BAD_HANDLE);
    return 0;
}

static int names(void) {
    EXPECT(strcmp(nexar_status_name(NEXAR_ERR_PEER_LOST), "PEER_LOST") == 0);
    EXPECT(strcmp(nexar_status_name(12345), "UNKNOWN") == 0);
    EXPECT(nexar_status_class(NEXAR_ERR_PEER_LOST) == NEXAR_CLASS_GROUP);
    uint64_t offset = 0, length = 0;
    EXPECT(nexar_shard(UINT64_MAX, 4, 3, &offset, &length) == NEXAR_OK && offset + length == UINT64_MAX);
    EXPECT(nexar_shard(7, 3, 0, &offset, &length) == NEXAR_OK && offset == 0 && length == 3);
    EXPECT(nexar_shard(7, 3, 1, &offset, &length) == NEXAR_OK && offset == 3 && length == 2);
    EXPECT(nexar_dtype_size(NEXAR_BF16) == 2 && nexar_dtype_size(99) == 0);
    EXPECT(strcmp(nexar_reduce_op_name(NEXAR_AVG), "avg") == 0);
    EXPECT(strcmp(nexar_dtype_name(NEXAR_U16), "u16") == 0);
    return 0;
}

static int version(void) {
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", NEXAR_VERSION_MAJOR, NEXAR_VERSION_MINOR, NEXAR_VERSION_PATCH);
    EXPECT(strcmp(nexar_version_text(), text) == 0);
    EXPECT(nexar_version() == (NEXAR_VERSION_MAJOR << 16 | NEXAR_VERSION_MINOR << 8 | NEXAR_VERSION_PATCH));
    return 0;
}

int main(void) {
    return initialised() || initialised_shorter() || without_daemon() || names() || version();
}
