/* A job on two hosts: every rank learns where the others run. two_hosts.sh makes the cluster and starts it.
 *
 *     cc two_hosts.c $(pkg-config --cflags --libs nexar) -o two_hosts */
#include <nexar.h>
#include <stdio.h>
#include <string.h>

#define RANKS_MAX 64

static int failed(const char* what) {
    nexar_perror(what);
    return 1;
}

int main(void) {
    nexar_session* session;
    nexar_group* group;
    if (nexar_session_open(NULL, &session) != NEXAR_OK) return failed("session");
    if (nexar_group_open(session, NULL, &group) != NEXAR_OK) return failed("group");

    uint32_t rank, size;
    if (nexar_group_rank(group, &rank) != NEXAR_OK || nexar_group_size(group, &size) != NEXAR_OK)
        return failed("rank and size");
    if (size > RANKS_MAX) return fprintf(stderr, "%u ranks; allowed: at most %d\n", size, RANKS_MAX), 1;
    char mine[65], all[RANKS_MAX][65]; /* a node's identity is 64 hexadecimal digits */
    if (nexar_session_node(session, mine, sizeof mine) != NEXAR_OK) return failed("node");
    if (nexar_all_gather(group, mine, all, sizeof mine, NEXAR_U8, NULL) != NEXAR_OK)
        return failed("all_gather");

    uint32_t here = 0;
    for (uint32_t r = 0; r < size; ++r) here += strcmp(all[r], mine) == 0;
    printf("rank %u: %u of %u ranks are on my host\n", rank, here, size);
    return nexar_group_free(group) | nexar_session_close(session);
}
