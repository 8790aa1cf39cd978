/* What nexar.h of a later 0.2.x might say: every struct has more at its end. In each field that is added, 0
 * means "as before", so that a program compiled against this runs with today's library as long as it does not
 * use them. */
#ifndef FUTURE_H
#define FUTURE_H

#include <nexar.h>

typedef struct future_op_options {
    nexar_op_options now;
    uint64_t stream;     /* of a device */
    uint64_t persistent; /* a request to start again */
} future_op_options;

typedef struct future_alloc_options {
    nexar_alloc_options now;
    uint32_t kind; /* of memory */
    uint32_t device;
} future_alloc_options;

typedef struct future_group_options {
    nexar_group_options now;
    uint32_t ranks_min; /* elastic groups */
    uint32_t ranks_max;
    const char* recovery;
} future_group_options;

typedef struct future_session_options {
    nexar_session_options now;
    uint64_t label;
} future_session_options;

typedef struct future_completion {
    nexar_completion now;
    uint64_t returned; /* by a remote call */
    uint64_t more[3];
} future_completion;

typedef struct future_error {
    nexar_error now;
    uint64_t call;
    char more[100];
} future_error;

typedef struct future_session_stats {
    nexar_session_stats now;
    uint64_t calls;
} future_session_stats;

#endif
