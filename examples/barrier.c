/* Ranks come 50 ms apart, and leave the barrier together: none before the last one has come.
 *
 *     cc barrier.c $(pkg-config --cflags --libs nexar) -o barrier && nexarctl run -n 4 -- ./barrier */
#define _POSIX_C_SOURCE 200809L
#include <nexar.h>
#include <stdio.h>
#include <time.h>

#define APART_MS 50

static int failed(const char* what) {
    nexar_perror(what);
    return 1;
}

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int main(void) {
    nexar_session* session;
    nexar_group* group;
    if (nexar_session_open(NULL, &session) != NEXAR_OK) return failed("session");
    if (nexar_group_open(session, NULL, &group) != NEXAR_OK) return failed("group");

    uint32_t rank, size;
    if (nexar_group_rank(group, &rank) != NEXAR_OK || nexar_group_size(group, &size) != NEXAR_OK)
        return failed("rank and size");
    if (nexar_barrier(group, NULL) != NEXAR_OK)
        return failed("first barrier"); /* all begin at the same time */
    const long begin = now_ms();
    const struct timespec pause = {0, (long)rank * APART_MS * 1000000};
    nanosleep(&pause, NULL);
    const long came = now_ms() - begin;
    if (nexar_barrier(group, NULL) != NEXAR_OK)
        return failed("second barrier"); /* an error names the late rank */
    printf("rank %u: came after %ld ms, left after %ld ms\n", rank, came, now_ms() - begin);
    return nexar_group_free(group) | nexar_session_close(session);
}
