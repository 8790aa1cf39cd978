/* nexar/operations.h - what all operations have: priorities, flags, options. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_OPERATIONS_H
#define NEXAR_OPERATIONS_H

#include "handles.h"

/* ==== Operations: common options ====
 * Each operation has two functions: nexar_x(..., options) blocks until it has ended and returns its status,
 * nexar_x_start(..., options, &request) returns at once; nexar_sendrecv, nexar_sendrecv_replace and nexar_mprobe only
 * block. Collectives, send and recv have a third one, nexar_x_init: see persistent.h. options may be NULL. */

/* Which of your operations is next where several wait for the daemon's workers, its memory or the network: the lowest
 * number, but now and then one of the others, so that none waits for ever. It takes nothing from other users, with whom
 * these are shared in turns, whatever they ask for. Each rank asks for itself: ranks of a collective may differ, and a
 * host works on it with the most urgent one of its ranks'. Of a message the sender's counts. Messages are received in
 * the order of the sends all the same, and collectives begin in the order of the calls. */
enum {
    NEXAR_PRIORITY_DEFAULT = -1, /* barrier: critical; small collectives (up to 256 KiB, unless the daemon is configured
                                    otherwise): realtime; all others, and messages: bulk */
    NEXAR_PRIORITY_CRITICAL = 0,
    NEXAR_PRIORITY_REALTIME = 1,
    NEXAR_PRIORITY_BULK = 2
};

/* How the partial results of a reduction are made; docs/types.md has bounds of the errors, and docs/performance/ the
 * costs. Ranks whose calls would be carried out differently get MISMATCH. Where a flag changes nothing (no sum or
 * product of floats; a scan, whose ranks are always combined one by one, in order) it is allowed, and not compared. */
enum {
    /* all_reduce, reduce, reduce_scatter(v): the same bits whatever the hosts of the ranks are, and however the
     * operation is cut: a fixed binary tree over the ranks, with partial results in f32 (f64 of f64), rounded to the
     * dtype once. Ranks of a host that are not neighbours send a partial result each: up to the number of ranks on a
     * host times the bytes of a reduce_scatter. Wins over F32_PARTIALS. */
    NEXAR_FLAG_DETERMINISTIC = 1,
    /* The same operations on floats below 32 bits: f32 between hosts, rounded to the dtype once: so the error does not
     * grow with the number of hosts; twice the bytes of f16 and bf16, four times those of 8-bit floats */
    NEXAR_FLAG_F32_PARTIALS = 2
};

typedef struct nexar_op_options {
    uint32_t struct_size;
    int32_t priority;    /* NEXAR_PRIORITY_...; others are INVALID_ARGUMENT */
    int64_t timeout_ms;  /* of the operation; default: the group's for its kind */
    uint64_t match_id;   /* collectives: a number of your choice that must be the same on all ranks, or all get
                            MISMATCH. It is compared only: calls are matched by their order. Messages: must be 0 */
    uint64_t user_data;  /* repeated in the completion */
    uint64_t flags;      /* NEXAR_FLAG_..., of collectives; messages: 0. What the group has is added */
    const void* scalar;  /* NEXAR_PREMUL_SUM: one element of the dtype, this rank's own, read before the call returns;
                            otherwise NULL */
} nexar_op_options;
#define NEXAR_OP_OPTIONS_INIT \
    {sizeof(nexar_op_options), NEXAR_PRIORITY_DEFAULT, NEXAR_TIMEOUT_DEFAULT, 0, 0, 0, NULL}
NEXAR_API void nexar_op_options_init(nexar_op_options* options, uint64_t size);

#endif
