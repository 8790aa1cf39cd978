/* Rank 0 has the settings, all others get them.
 *
 *     cc broadcast.c $(pkg-config --cflags --libs nexar) -o broadcast && nexarctl run -n 4 -- ./broadcast */
#include <nexar.h>
#include <stdio.h>
#include <string.h>

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
    char settings[64] = {0};
    if (rank == 0) strcpy(settings, "rate 0.1, 25 epochs");
    const uint32_t root = 0; /* whose bytes arrive; the same on all ranks, or all get MISMATCH */
    if (nexar_broadcast(group, settings, sizeof settings, NEXAR_U8, root, NULL) != NEXAR_OK)
        return failed("broadcast");
    printf("rank %u: %s\n", rank, settings);
    return nexar_group_free(group) | nexar_session_close(session);
}
