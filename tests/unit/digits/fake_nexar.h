/* What the parts of the fake library share. */
#pragma once
#include <nexar.h>

enum { SIZE = 3, RANK = 1 };

extern char group_objects[1 << 16]; /* handles; the first one is of an opened group, which has no parent */

/* Sets nexar_last_error. rank < 0: it is about none. */
nexar_status fail(nexar_status code, const char* op, int64_t rank, const char* text);
