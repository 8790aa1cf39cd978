/* Every rank adds its vector; all get the sum, in memory that the daemon uses in place.
 *
 *     cc all_reduce.c $(pkg-config --cflags --libs nexar) -o all_reduce && nexarctl run -n 4 -- ./all_reduce
 */
#include <nexar.h>
#include <stdio.h>

#define COUNT 1000

static int failed(const char* what) {
    nexar_perror(what);
    return 1;
}

int main(void) {
    nexar_session* session;
    nexar_group* group;
    float* x;
    if (nexar_session_open(NULL, &session) != NEXAR_OK) return failed("session");
    if (nexar_group_open(session, NULL, &group) != NEXAR_OK) return failed("group");
    if (nexar_alloc(session, COUNT * sizeof *x, NULL, (void**)&x) != NEXAR_OK) return failed("memory");

    uint32_t rank, size;
    if (nexar_group_rank(group, &rank) != NEXAR_OK || nexar_group_size(group, &size) != NEXAR_OK)
        return failed("rank and size");
    for (int i = 0; i < COUNT; ++i) x[i] = (float)(rank * COUNT + (uint32_t)i);
    if (nexar_all_reduce(group, x, x, COUNT, NEXAR_F32, NEXAR_SUM, NULL) != NEXAR_OK)
        return failed("all_reduce");

    /* 0 + 1000 + 2000 + ... and i from each rank */
    const float first = (float)(COUNT * size * (size - 1) / 2);
    for (int i = 0; i < COUNT; ++i)
        if (x[i] != first + (float)(size * (uint32_t)i))
            return printf("rank %u: x[%d] is %g\n", rank, i, x[i]), 1;
    printf("rank %u of %u: x[0] = %g, x[%d] = %g\n", rank, size, x[0], COUNT - 1, x[COUNT - 1]);
    return nexar_group_free(group) | nexar_session_close(session);
}
