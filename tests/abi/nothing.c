/* Every function of include/nexar.h, called with NULL and 0 and with handles that never were: each is an
 * error that says so, none is a crash. No daemon is needed. symbols.py sees that no function is missing here.
 */
#include <nexar.h>
#include <stdio.h>
#include <string.h>

static int wrong;

static void expect(const char* call, nexar_status have, nexar_status want) {
    nexar_error error = NEXAR_ERROR_INIT;
    const int known = nexar_last_error(&error) == NEXAR_OK && error.code == have && error.text[0] != 0;
    if (have == want && known) return;
    printf("%s: %s (last error %s: %s), want %s\n", call, nexar_status_name(have),
           nexar_status_name(error.code), error.text, nexar_status_name(want));
    wrong = 1;
}
#define HANDLE(call) expect(#call, (call), NEXAR_ERR_BAD_HANDLE)
#define ARGUMENT(call) expect(#call, (call), NEXAR_ERR_INVALID_ARGUMENT)

static void operations(nexar_group* group) {
    nexar_request r = 0;
    char x[64] = {0};
    const uint64_t counts[1] = {1};
    const nexar_piece pieces[1] = {{x, 1}};
    nexar_message message = 0;
    HANDLE(nexar_all_reduce(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL));
    HANDLE(nexar_all_reduce_start(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_reduce(group, x, x, 1, NEXAR_F32, NEXAR_SUM, 0, NULL));
    HANDLE(nexar_reduce_start(group, x, x, 1, NEXAR_F32, NEXAR_SUM, 0, NULL, &r));
    HANDLE(nexar_broadcast(group, x, 1, NEXAR_F32, 0, NULL));
    HANDLE(nexar_broadcast_start(group, x, 1, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_all_gather(group, x, x, 1, NEXAR_F32, NULL));
    HANDLE(nexar_all_gather_start(group, x, x, 1, NEXAR_F32, NULL, &r));
    HANDLE(nexar_reduce_scatter(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL));
    HANDLE(nexar_reduce_scatter_start(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_reduce_scatterv(group, x, x, counts, NEXAR_F32, NEXAR_SUM, NULL));
    HANDLE(nexar_reduce_scatterv_start(group, x, x, counts, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_all_to_all(group, x, x, 1, NEXAR_F32, NULL));
    HANDLE(nexar_all_to_all_start(group, x, x, 1, NEXAR_F32, NULL, &r));
    HANDLE(nexar_all_gatherv(group, x, x, counts, NEXAR_F32, NULL));
    HANDLE(nexar_all_gatherv_start(group, x, x, counts, NEXAR_F32, NULL, &r));
    HANDLE(nexar_gatherv(group, x, x, counts, NEXAR_F32, 0, NULL));
    HANDLE(nexar_gatherv_start(group, x, x, counts, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_all_to_allv(group, x, counts, x, counts, NEXAR_F32, NULL));
    HANDLE(nexar_all_to_allv_start(group, x, counts, x, counts, NEXAR_F32, NULL, &r));
    HANDLE(nexar_gather(group, x, x, 1, NEXAR_F32, 0, NULL));
    HANDLE(nexar_gather_start(group, x, x, 1, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_scatter(group, x, x, 1, NEXAR_F32, 0, NULL));
    HANDLE(nexar_scatter_start(group, x, x, 1, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_scatterv(group, x, x, counts, NEXAR_F32, 0, NULL));
    HANDLE(nexar_scatterv_start(group, x, x, counts, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_scan(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL));
    HANDLE(nexar_scan_start(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_exclusive_scan(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL));
    HANDLE(nexar_exclusive_scan_start(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_barrier(group, NULL));
    HANDLE(nexar_barrier_start(group, NULL, &r));
    HANDLE(nexar_send(group, x, 1, NEXAR_F32, 0, 0, NULL));
    HANDLE(nexar_send_start(group, x, 1, NEXAR_F32, 0, 0, NULL, &r));
    HANDLE(nexar_recv(group, x, 1, NEXAR_F32, 0, 0, NULL, NULL));
    HANDLE(nexar_recv_start(group, x, 1, NEXAR_F32, 0, 0, NULL, &r));
    HANDLE(nexar_sendrecv(group, x, 1, NEXAR_F32, 0, 0, x, 1, NEXAR_F32, 0, 0, NULL, NULL));
    HANDLE(nexar_sendrecv_replace(group, x, 1, NEXAR_F32, 0, 0, 0, 0, NULL, NULL));
    HANDLE(nexar_sendv(group, pieces, 1, NEXAR_F32, 0, 0, NULL));
    HANDLE(nexar_sendv_start(group, pieces, 1, NEXAR_F32, 0, 0, NULL, &r));
    HANDLE(nexar_recvv(group, pieces, 1, NEXAR_F32, 0, 0, NULL, NULL));
    HANDLE(nexar_recvv_start(group, pieces, 1, NEXAR_F32, 0, 0, NULL, &r));
    HANDLE(nexar_probe(group, 0, 0, NULL, NULL));
    HANDLE(nexar_probe_start(group, 0, 0, NULL, &r));
    HANDLE(nexar_mprobe(group, 0, 0, &message, NULL, NULL));
    HANDLE(nexar_mrecv(group, 1, x, 1, NEXAR_F32, NULL, NULL));
    HANDLE(nexar_mrecv_start(group, 1, x, 1, NEXAR_F32, NULL, &r));
    HANDLE(nexar_message_free(group, 1));
    if (message != 0) wrong = (printf("a refused mprobe wrote a message\n"), 1);
    if (r != 0) wrong = (printf("a refused start wrote a request\n"), 1);
}

/* NULL wherever something could be: what is looked at first is not promised, only that it is this class. */
static void all_null(void) {
    const nexar_status refused[] = {nexar_all_reduce(NULL, NULL, NULL, 0, 0, 0, NULL),
                                    nexar_all_reduce_start(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_reduce(NULL, NULL, NULL, 0, 0, 0, 0, NULL),
                                    nexar_reduce_start(NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_broadcast(NULL, NULL, 0, 0, 0, NULL),
                                    nexar_broadcast_start(NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_all_gather(NULL, NULL, NULL, 0, 0, NULL),
                                    nexar_all_gather_start(NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_reduce_scatter(NULL, NULL, NULL, 0, 0, 0, NULL),
                                    nexar_reduce_scatter_start(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_reduce_scatterv(NULL, NULL, NULL, NULL, 0, 0, NULL),
                                    nexar_reduce_scatterv_start(NULL, NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_all_to_all(NULL, NULL, NULL, 0, 0, NULL),
                                    nexar_all_to_all_start(NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_all_gatherv(NULL, NULL, NULL, NULL, 0, NULL),
                                    nexar_all_gatherv_start(NULL, NULL, NULL, NULL, 0, NULL, NULL),
                                    nexar_gatherv(NULL, NULL, NULL, NULL, 0, 0, NULL),
                                    nexar_gatherv_start(NULL, NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_all_to_allv(NULL, NULL, NULL, NULL, NULL, 0, NULL),
                                    nexar_all_to_allv_start(NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL),
                                    nexar_gather(NULL, NULL, NULL, 0, 0, 0, NULL),
                                    nexar_gather_start(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_scatter(NULL, NULL, NULL, 0, 0, 0, NULL),
                                    nexar_scatter_start(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_scatterv(NULL, NULL, NULL, NULL, 0, 0, NULL),
                                    nexar_scatterv_start(NULL, NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_scan(NULL, NULL, NULL, 0, 0, 0, NULL),
                                    nexar_scan_start(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_exclusive_scan(NULL, NULL, NULL, 0, 0, 0, NULL),
                                    nexar_exclusive_scan_start(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_barrier(NULL, NULL),
                                    nexar_barrier_start(NULL, NULL, NULL),
                                    nexar_send(NULL, NULL, 0, 0, 0, 0, NULL),
                                    nexar_send_start(NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_recv(NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_recv_start(NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_sendrecv(NULL, NULL, 0, 0, 0, 0, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_sendrecv_replace(NULL, NULL, 0, 0, 0, 0, 0, 0, NULL, NULL),
                                    nexar_sendv(NULL, NULL, 0, 0, 0, 0, NULL),
                                    nexar_sendv_start(NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_recvv(NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_recvv_start(NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_probe(NULL, 0, 0, NULL, NULL),
                                    nexar_probe_start(NULL, 0, 0, NULL, NULL),
                                    nexar_mprobe(NULL, 0, 0, NULL, NULL, NULL),
                                    nexar_mrecv(NULL, 0, NULL, 0, 0, NULL, NULL),
                                    nexar_mrecv_start(NULL, 0, NULL, 0, 0, NULL, NULL),
                                    nexar_message_free(NULL, 0),
                                    nexar_session_fd(NULL, NULL),
                                    nexar_session_poll(NULL, NULL, 0, 0, NULL),
                                    nexar_session_node(NULL, NULL, 0),
                                    nexar_session_stats_get(NULL, NULL),
                                    nexar_session_open(NULL, NULL),
                                    nexar_alloc(NULL, 0, NULL, NULL),
                                    nexar_free(NULL, NULL),
                                    nexar_register_memfd(NULL, NULL, 0, -1, 0),
                                    nexar_unregister(NULL, NULL)};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i)
        if (nexar_status_class(refused[i]) != NEXAR_CLASS_CALL)
            wrong = (printf("call %zu with NULL everywhere: %s\n", i, nexar_status_name(refused[i])), 1);
}

static void persistent(nexar_group* group) {
    nexar_request r = 0;
    char x[64] = {0};
    const uint64_t counts[1] = {1};
    HANDLE(nexar_all_reduce_init(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_reduce_init(group, x, x, 1, NEXAR_F32, NEXAR_SUM, 0, NULL, &r));
    HANDLE(nexar_broadcast_init(group, x, 1, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_all_gather_init(group, x, x, 1, NEXAR_F32, NULL, &r));
    HANDLE(nexar_reduce_scatter_init(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_reduce_scatterv_init(group, x, x, counts, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_all_to_all_init(group, x, x, 1, NEXAR_F32, NULL, &r));
    HANDLE(nexar_all_gatherv_init(group, x, x, counts, NEXAR_F32, NULL, &r));
    HANDLE(nexar_gatherv_init(group, x, x, counts, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_all_to_allv_init(group, x, counts, x, counts, NEXAR_F32, NULL, &r));
    HANDLE(nexar_gather_init(group, x, x, 1, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_scatter_init(group, x, x, 1, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_scatterv_init(group, x, x, counts, NEXAR_F32, 0, NULL, &r));
    HANDLE(nexar_scan_init(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_exclusive_scan_init(group, x, x, 1, NEXAR_F32, NEXAR_SUM, NULL, &r));
    HANDLE(nexar_barrier_init(group, NULL, &r));
    HANDLE(nexar_send_init(group, x, 1, NEXAR_F32, 0, 0, NULL, &r));
    HANDLE(nexar_recv_init(group, x, 1, NEXAR_F32, 0, 0, NULL, &r));
}

static void all_null_of_persistent(void) {
    const nexar_status refused[] = {nexar_all_reduce_init(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_reduce_init(NULL, NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_broadcast_init(NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_all_gather_init(NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_reduce_scatter_init(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_reduce_scatterv_init(NULL, NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_all_to_all_init(NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_all_gatherv_init(NULL, NULL, NULL, NULL, 0, NULL, NULL),
                                    nexar_gatherv_init(NULL, NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_all_to_allv_init(NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL),
                                    nexar_gather_init(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_scatter_init(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_scatterv_init(NULL, NULL, NULL, NULL, 0, 0, NULL, NULL),
                                    nexar_scan_init(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_exclusive_scan_init(NULL, NULL, NULL, 0, 0, 0, NULL, NULL),
                                    nexar_barrier_init(NULL, NULL, NULL),
                                    nexar_send_init(NULL, NULL, 0, 0, 0, 0, NULL, NULL),
                                    nexar_recv_init(NULL, NULL, 0, 0, 0, 0, NULL, NULL)};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i)
        if (nexar_status_class(refused[i]) != NEXAR_CLASS_CALL)
            wrong =
                (printf("persistent call %zu with NULL everywhere: %s\n", i, nexar_status_name(refused[i])),
                 1);
}

static void all_null_of_groups(void) {
    const nexar_status refused[] = {nexar_group_open(NULL, NULL, NULL),
                                    nexar_group_open_start(NULL, NULL, NULL),
                                    nexar_group_rank(NULL, NULL),
                                    nexar_group_size(NULL, NULL),
                                    nexar_group_epoch(NULL, NULL),
                                    nexar_group_node(NULL, 0, NULL, 0),
                                    nexar_group_member_get(NULL, 0, NULL),
                                    nexar_group_abort(NULL, NULL),
                                    nexar_group_info_get(NULL, NULL),
                                    nexar_group_translate(NULL, NULL, 0, NULL, NULL),
                                    nexar_group_split(NULL, 0, 0, NULL, NULL),
                                    nexar_group_split_start(NULL, 0, 0, NULL, NULL),
                                    nexar_group_dup(NULL, NULL, NULL),
                                    nexar_group_dup_start(NULL, NULL, NULL),
                                    nexar_group_create(NULL, NULL, 0, NULL, NULL),
                                    nexar_group_create_start(NULL, NULL, 0, NULL, NULL)};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; ++i)
        if (nexar_status_class(refused[i]) != NEXAR_CLASS_CALL)
            wrong = (printf("call %zu with NULL everywhere: %s\n", i, nexar_status_name(refused[i])), 1);
}

static void sessions(nexar_session* session) {
    nexar_group_options options = NEXAR_GROUP_OPTIONS_INIT;
    nexar_completion completions[2];
    nexar_session_stats stats = NEXAR_SESSION_STATS_INIT;
    nexar_group* group = NULL;
    nexar_request r = 0;
    uint64_t count = 0;
    void* memory = NULL;
    char text[NEXAR_NODE_TEXT];
    int fd = -1;
    options.name = "x";
    options.size = 1;
    HANDLE(nexar_group_open(session, &options, &group));
    HANDLE(nexar_group_open_start(session, &options, &r));
    HANDLE(nexar_ops_begin(session));
    HANDLE(nexar_ops_end(session));
    HANDLE(nexar_ops_drop(session));
    HANDLE(nexar_session_fd(session, &fd));
    HANDLE(nexar_session_poll(session, completions, sizeof *completions, 2, &count));
    HANDLE(nexar_ops_begin(session));
    HANDLE(nexar_ops_end(session));
    HANDLE(nexar_ops_drop(session));
    HANDLE(nexar_session_node(session, text, sizeof text));
    HANDLE(nexar_session_stats_get(session, &stats));
    HANDLE(nexar_session_close(session));
    HANDLE(nexar_alloc(session, 1, NULL, &memory));
    HANDLE(nexar_free(session, text));
    HANDLE(nexar_register_memfd(session, text, sizeof text, 0, 0));
    HANDLE(nexar_unregister(session, text));
}

static void groups(nexar_group* group) {
    uint32_t number = 0;
    char text[NEXAR_NODE_TEXT];
    nexar_group* child = NULL;
    nexar_group_info info = NEXAR_GROUP_INFO_INIT;
    nexar_group_member member = NEXAR_GROUP_MEMBER_INIT;
    nexar_request r = 0;
    HANDLE(nexar_group_rank(group, &number));
    HANDLE(nexar_group_size(group, &number));
    HANDLE(nexar_group_epoch(group, &number));
    HANDLE(nexar_group_node(group, 0, text, sizeof text));
    HANDLE(nexar_group_member_get(group, 0, &member));
    HANDLE(nexar_group_info_get(group, &info));
    HANDLE(nexar_group_translate(group, &number, 1, group, &number));
    HANDLE(nexar_group_split(group, 0, 0, &child, NULL));
    HANDLE(nexar_group_split_start(group, NEXAR_COLOUR_UNDEFINED, 0, NULL, &r));
    HANDLE(nexar_group_dup(group, &child, NULL));
    HANDLE(nexar_group_dup_start(group, NULL, &r));
    HANDLE(nexar_group_create(group, &number, 1, &child, NULL));
    HANDLE(nexar_group_create_start(group, &number, 1, NULL, &r));
    HANDLE(nexar_group_free(group));
    HANDLE(nexar_group_abort(group, "why"));
    operations(group);
    persistent(group);
}

static void requests(nexar_request r) {
    nexar_completion completion = NEXAR_COMPLETION_INIT;
    uint64_t index = 0, ended = 0;
    HANDLE(nexar_request_test(r, &completion));
    HANDLE(nexar_request_test(r, NULL));
    HANDLE(nexar_request_wait(r, 10, &completion));
    HANDLE(nexar_request_wait(r, NEXAR_TIMEOUT_NONE, NULL));
    HANDLE(nexar_request_cancel(r));
    HANDLE(nexar_request_start(r));
    const nexar_request never = 7;
    HANDLE(nexar_request_start_all(&never, 1));
    HANDLE(nexar_request_free(r));
    HANDLE(nexar_request_start(r));
    if (r != 0) HANDLE(nexar_request_start_all(&r, 1));
    if (r == 0) {
        ARGUMENT(nexar_request_test_any(&r, 1, &index, &completion));
        ARGUMENT(nexar_request_wait_any(&r, 1, 10, &index, &completion));
        ARGUMENT(nexar_request_test_some(&r, 1, &index, &ended, &completion, sizeof completion));
        ARGUMENT(nexar_request_wait_some(&r, 1, 10, &index, &ended, NULL, 0));
        if (nexar_request_wait_all(&r, 1, 10, &completion, sizeof completion) != NEXAR_OK)
            wrong = (printf("wait_all of a request that is 0, which counts as ended\n"), 1);
        return;
    }
    HANDLE(nexar_request_test_any(&r, 1, &index, &completion));
    HANDLE(nexar_request_wait_any(&r, 1, 10, &index, &completion));
    HANDLE(nexar_request_test_some(&r, 1, &index, &ended, &completion, sizeof completion));
    HANDLE(nexar_request_wait_some(&r, 1, 10, &index, &ended, NULL, 0));
    HANDLE(nexar_request_wait_all(&r, 1, 10, &completion, sizeof completion));
}

static void the_rest(void) {
    nexar_error error = NEXAR_ERROR_INIT;
    nexar_request r = 1;
    uint64_t index = 0;
    char text[8];
    ARGUMENT(nexar_session_open(NULL, NULL));
    ARGUMENT(nexar_group_options_from_env(NULL, 0));
    ARGUMENT(nexar_request_test_any(NULL, 0, &index, NULL));
    ARGUMENT(nexar_request_wait_any(NULL, 1, 10, &index, NULL));
    ARGUMENT(nexar_request_wait_any(&r, 4097, 10, &index, NULL));
    ARGUMENT(nexar_request_wait_some(&r, 4097, 10, &index, &index, NULL, 0));
    ARGUMENT(nexar_request_wait_all(NULL, 1, 10, NULL, 0));
    if (nexar_last_error(NULL) != NEXAR_ERR_INVALID_ARGUMENT) wrong = (printf("last_error(NULL)\n"), 1);
    error.struct_size = 0;
    if (nexar_last_error(&error) != NEXAR_ERR_INVALID_ARGUMENT) wrong = (printf("last_error, size 0\n"), 1);
    if (nexar_error_line(NULL, text, sizeof text, NULL) != NEXAR_ERR_INVALID_ARGUMENT)
        wrong = (printf("error_line(NULL)\n"), 1);
    error.struct_size = sizeof error;
    if (nexar_error_line(&error, NULL, 0, NULL) == NEXAR_OK &&
        nexar_error_line(&error, NULL, 0, &index) != NEXAR_OK)
        wrong = (printf("error_line without room\n"), 1);
    /* These have nothing to return; a NULL does nothing. */
    nexar_session_options_init(NULL, 0);
    nexar_alloc_options_init(NULL, 0);
    nexar_group_options_init(NULL, 100);
    nexar_child_options_init(NULL, 100);
    nexar_create_options_init(NULL, 100);
    nexar_op_options_init(NULL, 4);
    nexar_perror(NULL);
    nexar_perror("nothing");
    uint64_t offset = 0, length = 0;
    ARGUMENT(nexar_shard(10, 3, 1, NULL, &length));
    ARGUMENT(nexar_shard(10, 3, 1, &offset, NULL));
    ARGUMENT(nexar_shard(10, 0, 0, &offset, &length));
    ARGUMENT(nexar_shard(10, NEXAR_RANKS_MAX + 1, 0, &offset, &length));
    ARGUMENT(nexar_shard(10, 3, 3, &offset, &length));
    if (nexar_dtype_size(-1) != 0 || strcmp(nexar_dtype_name(-1), "UNKNOWN") != 0 ||
        strcmp(nexar_reduce_op_name(-1), "UNKNOWN") != 0 ||
        strcmp(nexar_status_name(-9999), "UNKNOWN") != 0 || nexar_status_class(0) != NEXAR_CLASS_NONE ||
        nexar_version() == 0 || nexar_version_text() == NULL)
        wrong = (printf("a name or number\n"), 1);
}

int main(void) {
    all_null();
    all_null_of_groups();
    all_null_of_persistent();
    sessions(NULL);
    sessions((nexar_session*)(uintptr_t)12345);
    groups(NULL);
    groups((nexar_group*)(uintptr_t)12345);
    requests(0);
    requests(12345678901u);
    the_rest();
    return wrong;
}
