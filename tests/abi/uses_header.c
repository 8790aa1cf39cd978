/* Uses every kind of thing in include/nexar.h; compiled as C99, C11, C++17 and C++20 with -pedantic -Werror.
 * It is run too: without a daemon, opening a session says so. */
#include <nexar.h>
#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
#define NEXAR_CAST(type, value) static_cast<type>(value)
#else
#define NEXAR_CAST(type, value) ((type)(value))
#endif

int main(void) {
    nexar_session_options options;
    nexar_group_options group_options;
    nexar_error error;
    nexar_completion completion;
    nexar_session* session = NULL;
    nexar_group* group = NULL;
    nexar_request request = 0;
    nexar_status status;

    nexar_session_options_init(&options, sizeof options);
    nexar_group_options_init(&group_options, sizeof group_options);
    if (options.slots != 256 || group_options.rank != NEXAR_RANK_AUTO) return 1;
    options.socket_path = "/nonexistent/nexard.sock";
    if (nexar_session_open(&options, &session) != NEXAR_ERR_NOT_FOUND) return 2;
    memset(&error, 0, sizeof error);
    error.struct_size = NEXAR_CAST(uint32_t, sizeof error);
    if (nexar_last_error(&error) != NEXAR_OK || error.code != NEXAR_ERR_NOT_FOUND) return 3;
    if (error.error_class != NEXAR_CLASS_CALL || error.rank != -1 || error.text[0] == 0) return 4;
    status = nexar_group_open(session, &group_options, &group);
    if (status != NEXAR_ERR_BAD_HANDLE) return 5;
    memset(&completion, 0, sizeof completion);
    completion.struct_size = NEXAR_CAST(uint32_t, sizeof completion);
    if (nexar_test(request, &completion) != NEXAR_ERR_BAD_HANDLE) return 6;
    if (strcmp(nexar_status_name(NEXAR_ERR_PEER_LOST), "PEER_LOST") != 0) return 7;
    if (strcmp(nexar_status_name(12345), "UNKNOWN") != 0) return 8;
    if (nexar_dtype_size(NEXAR_BF16) != 2 || nexar_dtype_size(99) != 0) return 9;
    if (strcmp(nexar_reduce_op_name(NEXAR_AVG), "avg") != 0 ||
        strcmp(nexar_dtype_name(NEXAR_U16), "u16") != 0)
        return 10;
    if (nexar_version() >> 16 != NEXAR_VERSION_MAJOR || strcmp(nexar_version_text(), "0.1.0") != 0) return 11;
    return 0;
}
