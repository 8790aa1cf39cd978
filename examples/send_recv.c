/* Rank 0 sends four floats with tag 42, rank 1 receives them.
 *
 *     cc send_recv.c $(pkg-config --cflags --libs nexar) -o send_recv && nexarctl run -n 2 -- ./send_recv */
#include <nexar.h>
#include <stdio.h>

#define TAG 42

static int failed(const char* what) {
    nexar_perror(what);
    return 1;
}

int main(void) {
    nexar_session* session;
    nexar_group* group;
    if (nexar_session_open(NULL, &session) != NEXAR_OK) return failed("session");
    if (nexar_group_open(session, NULL, &group) != NEXAR_OK) return failed("group");

    uint32_t rank;
    if (nexar_group_rank(group, &rank) != NEXAR_OK) return failed("rank");
    if (rank == 0) {
        const float values[4] = {1.5f, 2.5f, 3.5f, 4.5f};
        /* Ends when rank 1 has the values, so `values` may go away then. */
        if (nexar_send(group, values, 4, NEXAR_F32, 1, TAG, NULL) != NEXAR_OK) return failed("send");
    } else if (rank == 1) {
        float values[8]; /* room for more than will come */
        nexar_completion end = NEXAR_COMPLETION_INIT;
        if (nexar_recv(group, values, 8, NEXAR_F32, NEXAR_ANY_SOURCE, TAG, &end, NULL) != NEXAR_OK)
            return failed("recv");
        printf("%g %g %g %g: %d values with tag %d from rank %u\n", values[0], values[1], values[2],
               values[3], (int)(end.bytes / sizeof(float)), (int)end.tag, end.source);
    }
    return nexar_group_free(group) | nexar_session_close(session);
}
