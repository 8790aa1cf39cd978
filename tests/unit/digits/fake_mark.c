/* valgrind writes what it has counted since the last mark, with this text: for count_small_calls.py. */
#include "fake_nexar.h"

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif

NEXAR_API int fake_mark(const char* text); /* 0: compiled without valgrind's header */
int fake_mark(const char* text) {
    (void)text;
#ifdef CALLGRIND_DUMP_STATS_AT
    CALLGRIND_DUMP_STATS_AT(text);
    return 1;
#else
    return 0;
#endif
}
