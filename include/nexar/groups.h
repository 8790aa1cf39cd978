/* nexar/groups.h - forming a group, and leaving it. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_GROUPS_H
#define NEXAR_GROUPS_H

#include "handles.h"

/* ==== Groups ==== */

#define NEXAR_RANK_AUTO UINT32_MAX
#define NEXAR_RANKS_MAX 4096
#define NEXAR_NAME_MAX 128  /* bytes of a group's name or a job's secret, without the ending zero */
#define NEXAR_SECRET_MIN 16 /* bytes of a job's secret; generate it: who guesses it is a member */

/* What becomes of a group that has lost a rank, a node or a link: every pending and later call returns the error, which
 * names who was lost. It is the only policy yet. */
#define NEXAR_ON_FAILURE_ABORT 0

typedef struct nexar_group_options {
    uint32_t struct_size;
    uint32_t size;          /* ranks, 1 .. NEXAR_RANKS_MAX; the same for all members */
    uint32_t rank;          /* 0 .. size-1, each once; or NEXAR_RANK_AUTO on all members: by host name, node, process */
    uint32_t on_failure;    /* NEXAR_ON_FAILURE_ABORT; others are UNSUPPORTED */
    const char* name;       /* members have the same name, secret and user; NULL: "default", if there is a secret */
    const char* job_secret; /* NEXAR_SECRET_MIN .. NEXAR_NAME_MAX bytes; separates jobs, and admits processes of other
                               hosts and users; NULL: none, and only processes of this host and user are members */
    int64_t timeout_ms;     /* of this call: for all members to arrive; default 30 s; 0: only if all others wait */
    /* Time-outs of the group's operations, agreed when it is formed: members with DEFAULT take the other members'
     * value, or else the configuration (30 s) of the daemon that leads the opening; members with different values get
     * OPTIONS_DIFFER. 0 is refused. */
    int64_t collective_timeout_ms; /* of collectives and messages */
    int64_t barrier_timeout_ms;    /* of barriers; default: as collective_timeout_ms */
    int64_t rpc_timeout_ms;        /* agreed, but there are no remote calls yet */
    uint64_t user_data;            /* of nexar_group_open_start: repeated in its completion */
    uint64_t flags;                /* NEXAR_FLAG_...: of all its collectives, and of groups that are made from it */
} nexar_group_options;
#define NEXAR_GROUP_OPTIONS_INIT                                                                           \
    {sizeof(nexar_group_options), 0, NEXAR_RANK_AUTO, 0, NULL, NULL, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, \
     NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, 0, 0}

/* Defaults, size 0 (which you must set). Nothing is read from the environment. */
NEXAR_API void nexar_group_options_init(nexar_group_options* options, uint64_t size);

/* Defaults, then the environment's values; change the fields afterwards as you need. Rank and size: the first complete
 * pair of
 *     NEXAR_RANK, NEXAR_WORLD_SIZE                       (nexarctl run)
 *     RANK, WORLD_SIZE                                   (torchrun)
 *     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE         (mpirun)
 *     SLURM_PROCID, SLURM_NTASKS                         (srun)
 * NEXAR_RANK=auto is NEXAR_RANK_AUTO. The name is $NEXAR_GROUP, else the launcher's job id (TORCHELASTIC_RUN_ID, or
 * where that is "none" MASTER_ADDR:MASTER_PORT; SLURM_JOB_ID.SLURM_STEP_ID; PMIX_NAMESPACE); the secret is
 * $NEXAR_JOB_SECRET. Time-outs, in seconds, 0 for none:
 * $NEXAR_OPEN_TIMEOUT_SECS, $NEXAR_COLLECTIVE_TIMEOUT_SECS, $NEXAR_BARRIER_TIMEOUT_SECS, $NEXAR_RPC_TIMEOUT_SECS.
 * NEXAR_DETERMINISTIC=1 sets NEXAR_FLAG_DETERMINISTIC.
 * No other variable is read; the texts of the errors below name unknown variables that begin with NEXAR_.
 * The strings belong to the library and are valid until this thread calls this function again, or ends.
 *   NOT_FOUND          no rank and size: no complete pair, and neither NEXAR_RANK nor NEXAR_WORLD_SIZE. All other
 *                      fields are written; size is 0, which you must set, and rank is NEXAR_RANK_AUTO
 *   INVALID_ARGUMENT   NEXAR_RANK or NEXAR_WORLD_SIZE is set without the other, or a variable is no number or out of
 *                      its range: the text names it, and the options have their defaults */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_options_from_env(nexar_group_options* options, uint64_t size);

/* Joins the group and waits for all its members. options NULL: nexar_group_options_from_env. A session may have
 * several ranks of one group, each opened by its own call (on as many threads, or with _start). Without a name, a
 * secret and a launcher's job id the call is refused, so that unrelated jobs never form one group.
 *   INVALID_ARGUMENT   an option is out of its range; or neither name, secret nor job id is given
 *   NOT_FOUND          options is NULL, and the environment names no rank and size
 *   RANK_CLASH         two members ask for one rank, or some for a rank and some for any: returned to the later ones;
 *                      the first one waits on
 *   OPTIONS_DIFFER     members give different sizes or time-outs: returned to all that wait, and to the one that
 *                      arrived; members that arrive later form a new attempt
 *   GROUP_INCOMPLETE   the timeout passed; the text names the missing ranks, if they are numbered, and the arrived ones
 *   TABLE_FULL         this session has 4096 groups, this user as many as it may have on this host, or there are too
 *                      many openings or requests at once: end one first
 *   INTERRUPTED        a signal arrived: this process no longer waits for the group */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_open(nexar_session* session,
                                                         const nexar_group_options* options,
                                                         nexar_group** out);
/* The completion's `group` is the group. Cancelling the request ends the opening; freeing the request of an opening
 * whose completion no call has returned frees the group too. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_open_start(nexar_session* session,
                                                               const nexar_group_options* options,
                                                               nexar_request* request);

/* Leaves the group. Does not wait for other ranks. This rank's pending requests, all but sends, end with CLOSED at
 * once, also those that other threads wait for. Its sends are delivered, as after nexar_session_close: the request of a
 * send stays pending until it has ended, uses its memory, and can be waited for and cancelled as before. On the other
 * ranks, collectives that this rank had started, receives from it for which nothing was sent, and sends to it, end with
 * ABORTED naming it. The first collective that needs this rank and that it had not started ends the group: that
 * collective, and every later operation on the group, is PEER_LOST naming this rank. The handle is closed only on
 * NEXAR_OK. */
NEXAR_API nexar_status nexar_group_free(nexar_group* group);

/* Leaves the group and ends it: for a rank that cannot continue, and must not keep the others waiting. As if this
 * process had crashed now, except that it runs on: all other ranks get PEER_LOST naming this rank, whatever they have
 * called so far, and its text has `reason` (NULL: none; one line: control characters become blanks, and at most 384
 * bytes are kept). What all ranks had started before may still succeed. This rank's pending requests, its sends too,
 * end with CLOSED. Does not wait for other ranks. The handle is closed on NEXAR_OK. */
NEXAR_API nexar_status nexar_group_abort(nexar_group* group, const char* reason);

#endif
