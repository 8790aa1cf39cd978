/* nexar/handles.h - sessions, groups and requests, and how one ended. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_HANDLES_H
#define NEXAR_HANDLES_H

#include "status.h"

/* ==== Handles ==== */

typedef struct nexar_session nexar_session; /* a connection to the daemon of this host */
/* An ordered list of ranks, of which this process is one, in one epoch. When a group continues without lost ranks, it
 * gets a new epoch with a new handle; the old handle can only be queried and freed. */
typedef struct nexar_group nexar_group;
typedef uint64_t nexar_request; /* a started operation; 0 is never one */

/* The completion of a request. */
typedef struct nexar_completion {
    uint32_t struct_size;
    nexar_status status;   /* of the operation; NEXAR_PENDING: not ended */
    nexar_request request;
    uint64_t user_data;    /* as given in nexar_op_options or nexar_group_options */
    nexar_group* group;    /* of the operation; of nexar_group_open_start, _split_start and
                              _dup_start: the new group, which you free */
    uint64_t sequence;     /* collective: its number in the group, from 0; otherwise, and of one that was refused
                              before it got a number (as by a finished group), NEXAR_NO_SEQUENCE */
    uint64_t bytes;        /* of the message that was received, or that a probe has found; otherwise 0 */
    uint64_t tag;          /* its tag; otherwise 0 */
    uint32_t source;       /* the rank that sent it; otherwise NEXAR_ANY_SOURCE */
    uint32_t epoch;        /* of the group */
} nexar_completion;
#define NEXAR_COMPLETION_INIT \
    {sizeof(nexar_completion), NEXAR_PENDING, 0, 0, NULL, NEXAR_NO_SEQUENCE, 0, 0, UINT32_MAX, 0}

#endif
