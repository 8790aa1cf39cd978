/* shm_layout.h - what a client and its daemon share in memory. C11; every offset is asserted at the end.
 *
 * Ownership of every word, and the arguments for their order, are in docs/protocol/shm.md; [S1].. are its
 * invariants. Versioned by NEXAR_LOCAL_VERSION (local_protocol.h). Fields are only appended, into what is
 * reserved. */
#ifndef NEXAR_SHM_LAYOUT_H
#define NEXAR_SHM_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

#include "segments.h"

enum {
    NEXAR_SHM_SLOTS_MIN = 16,
    NEXAR_SHM_SLOTS_MAX = 4096,
    NEXAR_SHM_SLOTS_DEFAULT = 256,
    NEXAR_SHM_SLOT_BYTES = 256,
    NEXAR_SHM_PAYLOAD_BYTES = 512,
    NEXAR_SHM_DETAIL_BYTES = 1024,
    NEXAR_SHM_HEADER_BYTES = 4096,
    NEXAR_SHM_SUBMISSION_PER_SLOT = 4, /* entries of the submission ring per slot: one submit, some cancels */
    NEXAR_SHM_REGIONS_MAX = 1024,      /* per session at once; numbers are never used again, 0: no memory */
    NEXAR_SHM_GROUPS_MAX = 4096,       /* per session */
    NEXAR_SHM_GROUP_RANKS_MAX = 4096,
    NEXAR_SHM_PIECES_MAX = 256, /* of a message's memory */
    NEXAR_SHM_NAME_BYTES = 128,
    NEXAR_SHM_SECRET_BYTES_MIN = 16, /* of a job's secret, if there is one */
    NEXAR_SHM_OP_BYTES = 24,
    NEXAR_SHM_HOST_BYTES = 256,
    NEXAR_SHM_LOST_RANKS = 32,
    NEXAR_SHM_TEXT_BYTES = 512,
    NEXAR_SHM_REASON_BYTES = 384 /* of an abort; fits into a text with what is put before it */
};
#define NEXAR_SHM_MAGIC UINT64_C(0x32304c5258454e01) /* 01 "NEXRL02": never a text file */
#define NEXAR_SHM_NO_SEQUENCE UINT64_MAX

/* A slot's state, the low byte of its state word; the upper 24 bits are the low bits of its generation [S2].
 */
enum {
    NEXAR_SLOT_FREE = 0,      /* client's */
    NEXAR_SLOT_SUBMITTED = 1, /* daemon's */
    NEXAR_SLOT_DONE = 2       /* client's */
};
#define NEXAR_SLOT_WORD(generation, state) ((((generation) & 0xffffffu) << 8) | (state))

/* What a slot asks for. Below 64: operations of a group, the rows of operations.def. From 64: commands of the
 * session. */
enum {
#define NEXAR_COLLECTIVE(number, name, NAME, ...) NEXAR_OP_##NAME = (number),
#define NEXAR_MESSAGE(number, name, NAME, ...) NEXAR_OP_##NAME = (number),
#define NEXAR_GROUPING(number, name, NAME, ...) NEXAR_OP_##NAME = (number),
#include "operations.def"
    NEXAR_OP_KINDS, /* one more than the last */

    NEXAR_CMD_GROUP_OPEN = 64, /* payload: nexar_shm_group_open */
    NEXAR_CMD_GROUP_FREE = 65, /* group */
    NEXAR_CMD_GROUP_NODE = 66, /* group, peer: the rank; answer: detail.node, host, pid, and in lost_ranks its
                                  rank among those on its node, and how many these are */
    NEXAR_CMD_REGION_ADD = 67, /* never in the ring: comes over the socket, with the descriptor */
    NEXAR_CMD_REGION_FREE = 68,     /* in.region */
    NEXAR_CMD_GROUP_ABORT = 69,     /* group; payload: nexar_shm_group_abort */
    NEXAR_CMD_GROUP_INFO = 70,      /* group; answer: nexar_shm_group_info in the detail's place */
    NEXAR_CMD_GROUP_TRANSLATE = 71, /* group; payload: nexar_shm_group_translate; answer: its `ranks`, as
                                       ranks of the other group, in the detail's place */
    NEXAR_CMD_GROUP_CREATE = 72,    /* group: the parent; args: its listed ranks, `entries` uint64_t; payload:
                                       nexar_shm_group_create */
    NEXAR_CMD_END                   /* one more than the last */
};

enum {
    NEXAR_SHM_FLAG_ANY_TAG = 1,    /* others than these are refused */
    NEXAR_SHM_FLAG_STAGED_IN = 2,  /* `in` is a row of windows [S12], not the whole input; collectives only */
    NEXAR_SHM_FLAG_STAGED_OUT = 4, /* the same for `out` */
    NEXAR_SHM_FLAG_DETERMINISTIC = 8, /* these two: collectives only, and as nexar_op_options.flags */
    NEXAR_SHM_FLAG_F32_PARTIALS = 16,
    /* The slot's next descriptor will be the same: the daemon may keep what it made of this one [S22].
     * Of collectives that make no groups, send and recv. */
    NEXAR_SHM_FLAG_PERSISTENT = 32
};
#define NEXAR_SHM_ANY_RANK UINT32_MAX

enum {
    NEXAR_SHM_PRIORITY_DEFAULT = 255
}; /* the operation's own; otherwise 0 critical, 1 realtime, 2 bulk (docs/protocol/priorities.md) */

/* A region's part that begins at `offset`; its length follows from the descriptor. Region 0: no memory.
 * `entries`: of a list in memory; in `in` and `out` 0. */
typedef struct nexar_shm_extent {
    uint32_t region;
    uint32_t entries;
    uint64_t offset;
} nexar_shm_extent;

/* A piece of a message's memory, in the list that `args` names; `bytes` above 0, whole elements. */
typedef struct nexar_shm_piece {
    uint64_t region;
    uint64_t offset;
    uint64_t bytes;
} nexar_shm_piece;

/* Written by the client before SUBMITTED, copied once by the daemon [S3]. What is not used must be 0 [S14].
 */
typedef struct nexar_shm_descriptor {
    uint8_t kind;
    uint8_t dtype;
    uint8_t op;
    uint8_t priority; /* NEXAR_SHM_PRIORITY_... */
    uint32_t flags;   /* NEXAR_SHM_FLAG_... */
    uint32_t group;   /* a membership, as the daemon named it in result.group: (group, epoch, rank) */
    uint32_t peer;    /* root, destination, source or rank */
    uint64_t count;
    uint64_t tag;
    uint64_t match_id;  /* compared between ranks, never a key */
    int64_t timeout_ns; /* -1: the group's; 0: none */
    nexar_shm_extent in;
    nexar_shm_extent out;
    /* One list of counts, or two: `entries` uint64_t, one per rank. Of a message: `entries` nexar_shm_piece
     * instead of `in` or `out`; 0: there are none. */
    nexar_shm_extent args;
    uint32_t epoch;         /* the group's, as in result.group_epoch */
    uint32_t stage_windows; /* of each staged side; 0 when neither is staged */
    uint64_t scalar;        /* premul_sum: one element in the first bytes, the others 0 */
    uint8_t zero[16];
} nexar_shm_descriptor;

/* Written by the daemon before DONE [S4]. */
typedef struct nexar_shm_result {
    int32_t status;
    uint32_t source;
    uint64_t bytes;
    uint64_t tag;
    uint32_t group; /* GROUP_OPEN, GROUP_CREATE, GROUP_SPLIT, GROUP_DUP: the new group's name from now on (0:
                       none), and this session's rank in it */
    uint32_t rank;
    uint32_t size;
    uint32_t has_detail;
    uint32_t group_epoch; /* of the group that it was about; 0: of none */
    /* GROUP_OPEN: bytes that the group's operations take as one segment. A staged operation, while SUBMITTED:
     * how many segments are finished, counted from the first without a gap [S12]. */
    uint32_t stage;
    uint64_t sequence; /* a collective's number in its group; else NEXAR_SHM_NO_SEQUENCE */
    uint64_t message;  /* MPROBE: the number of the message that it has set apart; otherwise 0 */
} nexar_shm_result;

/* 4 cache lines: state; descriptor (2 lines); result. */
typedef struct nexar_shm_slot {
    uint32_t state;      /* futex; NEXAR_SLOT_WORD [S2] */
    uint32_t waiters;    /* client: threads that sleep or are about to sleep on `state` [S5] */
    uint32_t generation; /* client: all 32 bits, for people and nexarctl */
    /* Client, of a staged operation: segments whose input stands in its window, and whose output was taken
     * out of its window; both counted from the first without a gap [S12]. */
    uint32_t stage_filled;
    uint32_t stage_taken;
    uint32_t reserved[11];
    nexar_shm_descriptor descriptor;
    nexar_shm_result result;
} nexar_shm_slot;

typedef struct nexar_shm_group_open {
    uint32_t size;
    uint32_t rank; /* NEXAR_SHM_ANY_RANK: automatic */
    uint32_t name_bytes;
    uint32_t secret_bytes;
    int64_t timeout_ns;            /* of the opening; 0: none */
    int64_t collective_timeout_ns; /* these three: -1: the other ranks' value; 0: none */
    int64_t barrier_timeout_ns;
    int64_t rpc_timeout_ns;
    uint64_t instance; /* how often the launcher started this job again: 0 until there are restarts */
    char name[NEXAR_SHM_NAME_BYTES];
    char secret[NEXAR_SHM_NAME_BYTES];
} nexar_shm_group_open;

/* Why a rank aborts its group. */
typedef struct nexar_shm_group_abort {
    uint32_t reason_bytes;
    uint32_t reserved;
    char reason[NEXAR_SHM_REASON_BYTES];
} nexar_shm_group_abort;

/* What a rank states in GROUP_SPLIT and GROUP_DUP. The time-outs are the child's, as in an open. */
typedef struct nexar_shm_group_child {
    uint32_t colour; /* NEXAR_SHM_NO_COLOUR: it gets no child. GROUP_DUP: 0 */
    uint32_t reserved;
    int64_t key; /* the order in the child, equal ones in the parent's. GROUP_DUP: 0 */
    int64_t collective_timeout_ns;
    int64_t barrier_timeout_ns;
    int64_t rpc_timeout_ns;
} nexar_shm_group_child;
#define NEXAR_SHM_NO_COLOUR UINT32_MAX

/* A group of listed ranks. */
typedef struct nexar_shm_group_create {
    uint64_t tag;
    int64_t timeout_ns;            /* of the call; -1: the parent's for collectives; 0: none */
    int64_t collective_timeout_ns; /* these three: -1: the parent's; 0: none */
    int64_t barrier_timeout_ns;
    int64_t rpc_timeout_ns;
    uint64_t reserved;
} nexar_shm_group_create;

/* What a group is, as an answer. Time-outs in milliseconds, 0: none. */
typedef struct nexar_shm_group_info {
    uint64_t id[3];
    uint64_t parent[3]; /* of a child; else zeros */
    int64_t collective_timeout_ms;
    int64_t barrier_timeout_ms;
    int64_t rpc_timeout_ms;
    uint32_t nodes;
    uint32_t name_bytes;
    uint32_t parent_name_bytes;
    uint32_t reserved;
    char name[NEXAR_SHM_NAME_BYTES];
    char parent_name[NEXAR_SHM_NAME_BYTES];
    uint32_t plan_version; /* this and the following: the plan table */
    uint32_t plan_lanes;
    uint32_t plan_chunk_bytes;
    uint32_t plan_shards;
    uint64_t plan_segment_bytes;
    uint64_t plan_small_bytes_max;
    uint64_t plan_doubling_bytes_max;
} nexar_shm_group_info;

/* Ranks of one group that are to be ranks of another one. */
enum { NEXAR_SHM_TRANSLATE_MAX = 126 };
typedef struct nexar_shm_group_translate {
    uint32_t to; /* a membership */
    uint32_t count;
    uint32_t ranks[NEXAR_SHM_TRANSLATE_MAX]; /* as an answer NEXAR_SHM_ANY_RANK: it is not in that group */
} nexar_shm_group_translate;

/* Client's; one per slot, of the slot's kind. */
typedef struct nexar_shm_payload {
    union {
        uint8_t bytes[NEXAR_SHM_PAYLOAD_BYTES];
        nexar_shm_group_open group_open;
        nexar_shm_group_abort group_abort;
        nexar_shm_group_child group_child;
        nexar_shm_group_create group_create;
        nexar_shm_group_translate group_translate;
    };
} nexar_shm_payload;

/* Daemon's; one per slot; valid when the slot is DONE and has_detail. */
typedef struct nexar_shm_detail {
    int32_t code;
    uint32_t text_bytes;
    int64_t rank;
    int64_t other_rank;
    uint32_t has_node;
    uint32_t pid;         /* of the process at fault; 0: not known */
    int32_t system_errno; /* 0: no system call failed */
    uint32_t lost_count;  /* ranks that are lost; the first of them in lost_ranks, ascending */
    uint8_t node[32];
    uint32_t lost_ranks[NEXAR_SHM_LOST_RANKS];
    char op[NEXAR_SHM_OP_BYTES];     /* zero-ended */
    char host[NEXAR_SHM_HOST_BYTES]; /* zero-ended; "": not known */
    char text[NEXAR_SHM_TEXT_BYTES];
    uint8_t reserved[NEXAR_SHM_DETAIL_BYTES - 992];
} nexar_shm_detail;

/* The first page of the control segment. One writer per cache line. */
typedef struct nexar_shm_header {
    uint64_t magic; /* client, once; for people: the daemon computes with the numbers of the handshake */
    uint32_t version;
    uint32_t slots;
    uint64_t bytes;
    uint8_t reserved0[40];

    uint32_t submit_tail; /* clients' threads: next entry to reserve [S1] */
    uint8_t reserved1[60];

    uint32_t submit_head; /* daemon: entries taken */
    uint8_t reserved2[60];

    uint32_t completion_tail; /* daemon: entries written, futex [S6] */
    uint8_t reserved3[60];

    uint32_t completion_waiters; /* client: threads that sleep on completion_tail [S5] */
    uint32_t bell_wanted;        /* client: wants a byte on the socket when something ends [S5] */
    uint64_t bytes_copied;       /* client: for nexarctl */
    uint64_t waits_slept;
    uint32_t goodbye;  /* client: 1: its end is orderly; for a socket too full for GOODBYE */
    uint32_t given_up; /* client: 1: it believes that the daemon stands still, and goes on without it [S15] */
    /* client: packets other than doorbells that it has begun to send, and has sent, both plus 1; 0: it does
     * not count, and whatever comes is read at once [S7] */
    uint32_t messages_begun;
    uint32_t messages_sent;
    uint8_t reserved4[24];

    uint32_t closed_code; /* daemon: why it ended this session, as nexar_status; 0: it did not */
    uint8_t reserved5[60];

    uint8_t reserved6[NEXAR_SHM_HEADER_BYTES - 6 * 64];
} nexar_shm_header;

/* Ring entries are 64 bits: generation << 32 | turn << 24 | kind << 16 | slot. `turn` is the number of times
 * that the ring went round, plus 1, modulo 256: it distinguishes a written entry from the last round's [S1].
 */
enum {
    NEXAR_ENTRY_SUBMIT = 1,
    NEXAR_ENTRY_CANCEL = 2,
    NEXAR_ENTRY_COMPLETION = 3, /* a slot is DONE, or a staged one has made progress [S12] */
    NEXAR_ENTRY_STAGE = 4       /* stage_filled or stage_taken of the slot has grown [S12] */
};

/* The daemon's page: one per daemon, its only writer; clients map it read-only. */
typedef struct nexar_shm_daemon_page {
    uint64_t magic;
    uint32_t version;
    uint32_t pid;
    uint8_t reserved0[48];
    uint64_t tick_ns; /* CLOCK_MONOTONIC of the loop's last turn; every NEXAR_SHM_TICK_MS while there is
                         a session */
    uint8_t reserved1[56];
    uint32_t sleeping; /* 1: the loop sleeps or is about to: ring the doorbell [S7] */
    uint32_t reserved2;
    uint64_t sleep; /* this sleep's number, stored before `sleeping`: a session rings once in each [S7] */
    uint8_t reserved3[48];
    uint32_t busy_sessions; /* sessions with operations in flight: for the wait policy */
    uint32_t bulk_threads;  /* the daemon's shards that move bulk data: for the wait policy */
    uint8_t reserved4[56];
} nexar_shm_daemon_page;

enum { NEXAR_SHM_TICK_MS = 500 };

/* The alive page: one per session, which the daemon alone can write. `alive` is a robust futex of the
 * daemon's loop thread: tid | FUTEX_WAITERS while it runs; FUTEX_OWNER_DIED, set by the kernel;
 * NEXAR_ALIVE_STOPPED [S8]. */
typedef struct nexar_shm_alive_page {
    uint32_t alive;
    uint32_t reserved[15];
} nexar_shm_alive_page;

#define NEXAR_ALIVE_TID_MASK UINT32_C(0x3fffffff)
#define NEXAR_ALIVE_OWNER_DIED UINT32_C(0x40000000)
#define NEXAR_ALIVE_WAITERS UINT32_C(0x80000000)
#define NEXAR_ALIVE_STOPPED NEXAR_ALIVE_WAITERS /* tid 0: no thread; the session ended in order */

/* The control segment: header, slots, payloads, details, submission ring, completion ring, in this order. */
static inline uint64_t nexar_shm_slots_offset(void) {
    return NEXAR_SHM_HEADER_BYTES;
}
static inline uint64_t nexar_shm_payloads_offset(uint32_t slots) {
    return nexar_shm_slots_offset() + UINT64_C(1) * slots * NEXAR_SHM_SLOT_BYTES;
}
static inline uint64_t nexar_shm_details_offset(uint32_t slots) {
    return nexar_shm_payloads_offset(slots) + UINT64_C(1) * slots * NEXAR_SHM_PAYLOAD_BYTES;
}
static inline uint32_t nexar_shm_submission_entries(uint32_t slots) {
    return slots * NEXAR_SHM_SUBMISSION_PER_SLOT;
}
static inline uint64_t nexar_shm_submission_offset(uint32_t slots) {
    return nexar_shm_details_offset(slots) + UINT64_C(1) * slots * NEXAR_SHM_DETAIL_BYTES;
}
static inline uint64_t nexar_shm_completion_offset(uint32_t slots) {
    return nexar_shm_submission_offset(slots) + UINT64_C(8) * nexar_shm_submission_entries(slots);
}
/* A multiple of 4096. */
static inline uint64_t nexar_shm_control_bytes(uint32_t slots) {
    return (nexar_shm_completion_offset(slots) + UINT64_C(1) * slots * 8 + 4095) & ~UINT64_C(4095);
}

static inline int nexar_shm_slots_valid(uint32_t slots) {
    return slots >= NEXAR_SHM_SLOTS_MIN && slots <= NEXAR_SHM_SLOTS_MAX && (slots & (slots - 1)) == 0;
}

#if defined(__cplusplus)
#define NEXAR_SHM_ASSERT(...) static_assert(__VA_ARGS__, #__VA_ARGS__)
#else
#define NEXAR_SHM_ASSERT(...) _Static_assert(__VA_ARGS__, #__VA_ARGS__)
#endif
NEXAR_SHM_ASSERT(sizeof(nexar_shm_extent) == 16);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_piece) == 24);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_descriptor) == 128);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_result) == 64);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_slot) == NEXAR_SHM_SLOT_BYTES);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_payload) == NEXAR_SHM_PAYLOAD_BYTES);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_detail) == NEXAR_SHM_DETAIL_BYTES);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_header) == NEXAR_SHM_HEADER_BYTES);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_daemon_page) == 256);
NEXAR_SHM_ASSERT(sizeof(nexar_shm_alive_page) == 64);

#endif
