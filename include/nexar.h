/* nexar.h - talk to the nexar daemon of this host: groups of ranks, collectives, messages. */
/* clang-format off */

/* This header is the manual. Rules that hold for every function below, so that no comment repeats them:
 *
 *   Handles   nexar_session*, nexar_group* and nexar_request are checked numbers, not addresses: using one that
 *             was closed, freed, or never existed is NEXAR_ERR_BAD_HANDLE (or _CLOSED), never a crash. You end a
 *             handle with the matching close or free. A child made by fork() owns none of its parent's handles:
 *             every call on one is NEXAR_ERR_CLOSED there, and the child may open a session of its own.
 *   Threads   Any thread may call anything at any time. One exception of meaning, not of safety: the collectives
 *             of one group must be started in the same order on all ranks, so two threads that start collectives
 *             on one group must agree on an order (use one group per thread, or a lock).
 *   Blocking  Nothing blocks except: nexar_session_open and nexar_group_open; short exchanges with the local
 *             daemon (nexar_group_node, nexar_alloc, nexar_free, nexar_register, nexar_unregister); functions
 *             that take timeout_ms. There are no hidden threads and no signal handlers.
 *   Timeouts  int64_t milliseconds. -1: the group's collective_timeout. 0: try, do not wait. No call hangs: when
 *             the daemon dies every pending call ends at once with NEXAR_ERR_DAEMON_LOST, and when it is alive
 *             but does not run, with NEXAR_ERR_DAEMON_UNRESPONSIVE.
 *   Signals   A signal handler (installed without SA_RESTART, as Python's are) ends nexar_wait, nexar_wait_any and
 *             nexar_group_open with NEXAR_ERR_INTERRUPTED; a request stays as it was, wait again. The blocking operations go on
 *             waiting: where Ctrl-C must work, use _start and nexar_wait.
 *   Errors    Functions return nexar_status. Out parameters are written only on NEXAR_OK unless said otherwise.
 *             After any other status nexar_last_error() on the same thread says which rank, node, operation and
 *             why. A call that this process rejects (bad argument, table full) had no effect and used up no
 *             place in the group's order of operations: the other ranks are not affected.
 *   Memory    Any memory will do. Memory from nexar_alloc or nexar_register is used in place, without copies; other
 *             memory is copied through scratch, which this process pays for, up to scratch_limit.
 *             A blocking operation copies while it works. Of _start there are two cases. While the copies fit
 *             into scratch_limit, it copies the whole input before it returns, and needs no further call to progress;
 *             the output is copied back by the call that first finds that it ended. Beyond, a collective is
 *             *staged*: its bytes move only inside nexar_wait, nexar_test, nexar_wait_any, nexar_session_poll and blocking
 *             operations of this session (any of them moves the bytes of all staged requests), and inside nexar_session_fd.
 *             A rank that makes no such call holds up the others until the deadline, which names it. A message
 *             that does not fit has scratch of its own while it is pending, beyond the limit.
 *             Output memory is yours again when the request has ended, and input memory too (only where _start copied
 *             the whole input, already when it returns: do not count on it). On failure the content of output memory
 *             is unspecified.
 *             Counts are elements, not bytes, where a dtype stands beside them.
 *   Structs   Options and results begin with struct_size. Options: call nexar_<x>_options_init(&o, sizeof o),
 *             then set what you need; never copy the size by hand. Results (nexar_error, nexar_completion,
 *             nexar_session_stats): set struct_size = sizeof before the call. So old programs meet new libraries.
 *
 * A rank of a job is this short:
 *
 *     nexar_session *session;  nexar_group *group;  float *x;
 *     nexar_session_open(NULL, &session);
 *     nexar_group_open(session, NULL, &group);                    // who and how many: from the environment
 *     nexar_alloc(session, 1000 * sizeof *x, (void **)&x);
 *     ...
 *     if (nexar_all_reduce(group, x, x, 1000, NEXAR_F32, NEXAR_SUM, -1) != NEXAR_OK) ... nexar_last_error ...
 *     nexar_group_free(group);  nexar_session_close(session);
 */
#ifndef NEXAR_H
#define NEXAR_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define NEXAR_API __attribute__((visibility("default")))
#define NEXAR_MUST_CHECK __attribute__((warn_unused_result))
#else
#define NEXAR_API
#define NEXAR_MUST_CHECK
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ==== Status ====
 * Grouped by what you can do about them. The numbers are stable, and the same in the daemon, on the wire and in
 * logs. */

typedef int32_t nexar_status;
enum {
    NEXAR_OK = 0,
    NEXAR_PENDING = 1, /* not an error: started, not finished */

    /* Fix the call. */
    NEXAR_ERR_INVALID_ARGUMENT = -1,
    NEXAR_ERR_BAD_STATE = -2, /* right call, wrong moment: freeing a pending request, memory in use, ... */
    NEXAR_ERR_UNSUPPORTED = -3,
    NEXAR_ERR_NOT_FOUND = -4, /* no daemon listens, or nothing of that name */
    NEXAR_ERR_PERMISSION = -5,
    NEXAR_ERR_CLOSED = -6, /* session or group was closed on this side, or is the parent process's */
    NEXAR_ERR_BAD_HANDLE = -7,

    /* Try again, or give more time or room. */
    NEXAR_ERR_TABLE_FULL = -20, /* too many requests, groups or regions at once: end one first */
    NEXAR_ERR_TIMED_OUT = -21,
    NEXAR_ERR_INTERRUPTED = -22, /* a signal arrived while waiting */
    NEXAR_ERR_NO_MEMORY = -23,
    NEXAR_ERR_CANCELLED = -24,

    /* The ranks do not agree on what they are doing. This operation failed on all; the group lives. */
    NEXAR_ERR_MISMATCH = -30,   /* kind, dtype, op, count or root differ, or a message exceeds its buffer */
    NEXAR_ERR_RANK_CLASH = -31, /* two members ask for one rank, or different sizes under one name */
    NEXAR_ERR_GROUP_INCOMPLETE = -32, /* the deadline passed and somebody is missing */

    /* This group is finished: free it, and open a new one with the survivors. */
    NEXAR_ERR_PEER_LOST = -40, /* a rank (its process or its node) is gone */
    NEXAR_ERR_LINK_LOST = -41, /* two live nodes cannot reach each other */
    NEXAR_ERR_ABORTED = -42,   /* another rank cancelled, or its deadline passed: this one operation failed */

    /* This session is finished: close it, and open a new one. */
    NEXAR_ERR_DAEMON_LOST = -60,
    NEXAR_ERR_DAEMON_UNRESPONSIVE = -61,
    NEXAR_ERR_SESSION_REFUSED = -62,
    NEXAR_ERR_PROTOCOL_ERROR = -63,

    NEXAR_ERR_IO = -80 /* the operating system refused something; the text says what */
};

/* What a status means for you, as a class. */
enum {
    NEXAR_CLASS_NONE = 0,      /* NEXAR_OK, NEXAR_PENDING */
    NEXAR_CLASS_CALL = 1,      /* fix the call */
    NEXAR_CLASS_RETRIABLE = 2, /* try again, or give more time or room */
    NEXAR_CLASS_OPERATION = 3, /* this operation failed on all ranks; the group lives */
    NEXAR_CLASS_GROUP = 4,     /* fatal for the group */
    NEXAR_CLASS_SESSION = 5    /* fatal for the session */
};

enum { NEXAR_NODE_TEXT = 65, NEXAR_OP_TEXT = 24, NEXAR_ERROR_TEXT = 256 }; /* sizes with the ending zero */

typedef struct nexar_error {
    uint32_t struct_size;
    nexar_status code;
    int32_t error_class; /* NEXAR_CLASS_... of code */
    int32_t reserved;
    int64_t rank;                /* at fault, in its group; -1: none or not known */
    int64_t other_rank;          /* second end of a lost link; -1: none */
    char node[NEXAR_NODE_TEXT];  /* node at fault, 64 hex digits; "" : none or not known */
    char op[NEXAR_OP_TEXT];      /* "all_reduce", "group_open", ... */
    char text[NEXAR_ERROR_TEXT]; /* a sentence: what was wrong and what is allowed */
} nexar_error;

/* The last failure of a nexar call on this thread; code NEXAR_OK if there was none. It stays until the next one.
 *   INVALID_ARGUMENT   error is NULL or struct_size was not set (a smaller one, of an older header, is filled in
 *                      part) */
NEXAR_API nexar_status nexar_last_error(nexar_error* error);

/* Names, for people: "PEER_LOST", "f32", "sum"; never NULL ("UNKNOWN"). The strings are static. */
NEXAR_API const char* nexar_status_name(nexar_status status);
NEXAR_API int32_t nexar_status_class(nexar_status status);

/* ==== Version ==== */

#define NEXAR_VERSION_MAJOR 0
#define NEXAR_VERSION_MINOR 1
#define NEXAR_VERSION_PATCH 0
/* Of the library that is loaded: major << 16 | minor << 8 | patch, and the same as "0.1.0". */
NEXAR_API uint32_t nexar_version(void);
NEXAR_API const char* nexar_version_text(void);

/* ==== Element types and reductions ====
 * avg is the sum divided once by the number of ranks. Sums of f16 and bf16 round as those types. */

typedef int32_t nexar_dtype;
enum {
    NEXAR_F32 = 0,
    NEXAR_F64 = 1,
    NEXAR_F16 = 2,
    NEXAR_BF16 = 3,
    NEXAR_I8 = 4,
    NEXAR_I32 = 5,
    NEXAR_I64 = 6,
    NEXAR_U8 = 7,
    NEXAR_U32 = 8,
    NEXAR_U64 = 9,
    NEXAR_I16 = 10,
    NEXAR_U16 = 11
};

typedef int32_t nexar_reduce_op;
enum { NEXAR_SUM = 0, NEXAR_PROD = 1, NEXAR_MIN = 2, NEXAR_MAX = 3, NEXAR_AVG = 4 };

NEXAR_API uint64_t nexar_dtype_size(nexar_dtype dtype); /* bytes; 0: no such type */
NEXAR_API const char* nexar_dtype_name(nexar_dtype dtype);
NEXAR_API const char* nexar_reduce_op_name(nexar_reduce_op op);

/* ==== Session: a connection to the daemon of this host. Everything else lives inside one. ==== */

typedef struct nexar_session nexar_session;

typedef struct nexar_session_options {
    uint32_t struct_size;           /* set by nexar_session_options_init */
    uint32_t slots;                 /* requests at once, 16 .. 4096, a power of two; default 256 */
    const char* socket_path;        /* NULL: $NEXAR_SOCKET, else /run/nexar/nexard.sock */
    int64_t connect_timeout_ms;     /* default 5000 */
    int64_t daemon_unresponsive_ms; /* a daemon that stood still for so long is given up; default 10000, -1:
                                       never */
    uint64_t scratch_limit;         /* bytes that copies of ordinary memory may take at once; default 256 MiB */
    int64_t spin_us;                /* longest busy wait before sleeping; default 50, 0: always sleep */
} nexar_session_options;

NEXAR_API void nexar_session_options_init(nexar_session_options* options, size_t size);

/* Opens a session; options may be NULL. Close it with nexar_session_close.
 *   NOT_FOUND         nobody listens at the socket
 *   PERMISSION        the socket's permissions refuse this user
 *   SESSION_REFUSED   the daemon said no (its reason is in the text): limit reached, versions too far apart
 *   TIMED_OUT         the daemon did not answer in connect_timeout_ms */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_session_open(const nexar_session_options* options,
                                                           nexar_session** out);

/* Ends the session, its groups, its requests and its memory. Calls that wait on other threads end with
 * CLOSED. Memory from nexar_alloc is unmapped: do not use it any more. A rank that closes its session before
 * its last collective ended is PEER_LOST to the others. A process that returns from main or calls exit() without
 * closing has closed its sessions; one that crashes, is killed or calls _exit() ends all its groups with PEER_LOST. */
NEXAR_API nexar_status nexar_session_close(nexar_session* session);

/* For event loops: *fd becomes readable when requests have ended, when bytes of staged requests can be moved (see
 * Memory), or when the daemon is gone; then call nexar_session_poll until it reports no more. A daemon that does not
 * run makes nothing readable: only a nexar_session_poll now and then finds that out. Do not read, write or close it. */
NEXAR_API nexar_status nexar_session_fd(nexar_session* session, int* fd);

typedef uint64_t nexar_request; /* 0 is never a request */

/* Writes up to capacity requests that have ended since the last poll and were not freed, each once, and their
 * number. Call nexar_test on each for its status. Does not block. Moves the bytes of staged requests.
 *   DAEMON_LOST, DAEMON_UNRESPONSIVE   the daemon is gone, or stands still; what had ended before is still
 *                                      reported first */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_session_poll(nexar_session* session, nexar_request* ended,
                                                           size_t capacity, size_t* count);

/* The identity of this host's node, 64 hex digits; size at least NEXAR_NODE_TEXT. */
NEXAR_API nexar_status nexar_session_node(nexar_session* session, char* text, size_t size);

typedef struct nexar_session_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t operations;    /* started */
    uint64_t bytes_copied;  /* in and out of scratch, because the memory was ordinary */
    uint64_t scratch_bytes; /* held now */
    uint64_t regions;       /* from nexar_alloc, nexar_register, and scratch */
    uint64_t doorbells;     /* times that the daemon had to be woken */
    uint64_t waits_ready;   /* waits that found the operation ended */
    uint64_t waits_spun;    /* ... ended while spinning */
    uint64_t waits_yielded; /* ... ended while yielding the processor */
    uint64_t waits_slept;   /* ... slept */
} nexar_session_stats;

NEXAR_API nexar_status nexar_session_stats_get(nexar_session* session, nexar_session_stats* stats);

/* ==== Memory that the daemon can reach ==== */

/* Zeroed, page-aligned memory that operations use in place. bytes > 0. It counts against this process.
 *   NO_MEMORY   the system or the daemon's limits for this user refused      TABLE_FULL   too many regions */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_alloc(nexar_session* session, uint64_t bytes, void** out);

/* Gives memory from nexar_alloc back. BAD_STATE: a pending request uses it. NOT_FOUND: not the start of such
 * memory. */
NEXAR_API nexar_status nexar_free(nexar_session* session, void* memory);

/* Makes memory that you mapped yourself usable in place: address is where this process mapped, shared and
 * writable, `bytes` bytes of the memfd `fd` from `offset` (a multiple of the page size) on. The memfd is sealed
 * against shrinking, growing and further seals (create it with MFD_ALLOW_SEALING); you keep the descriptor and the
 * mapping.
 *   UNSUPPORTED   not a memfd, or it does not allow seals */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_register(nexar_session* session, void* address, uint64_t bytes,
                                                       int fd, uint64_t offset);

/* The reverse; before you unmap. BAD_STATE: a pending request uses it. */
NEXAR_API nexar_status nexar_unregister(nexar_session* session, void* address);

/* ==== Groups: ordered lists of ranks ==== */

typedef struct nexar_group nexar_group;

#define NEXAR_RANK_AUTO UINT32_MAX
#define NEXAR_RANKS_MAX 4096
#define NEXAR_NAME_MAX 128 /* bytes of a group's name or a job's secret, without the ending zero */

typedef struct nexar_group_options {
    uint32_t struct_size; /* set by nexar_group_options_init */
    uint32_t size;        /* ranks, 1 .. NEXAR_RANKS_MAX; the same for all members */
    uint32_t rank;        /* 0 .. size-1, each once; or NEXAR_RANK_AUTO on all members */
    uint32_t reserved;
    const char* name;       /* who meets: same name, same secret, same user; default "default" */
    const char* job_secret; /* keeps jobs apart, and admits other users' processes; default NULL: none */
    int64_t timeout_ms;     /* for all members to arrive; default and -1: 30000 */
    int64_t collective_timeout_ms; /* deadline of each operation; -1: the daemon's (30000); 0: none */
} nexar_group_options;

/* Defaults, size 0 (which you must set). Nothing is read from the environment. */
NEXAR_API void nexar_group_options_init(nexar_group_options* options, size_t size);

/* Joins the group and waits for all its members. options NULL: from the environment, the first complete pair of
 *     NEXAR_RANK, NEXAR_WORLD_SIZE                       (nexarctl run)
 *     RANK, WORLD_SIZE                                   (torchrun)
 *     SLURM_PROCID, SLURM_NTASKS                         (srun)
 *     OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE         (mpirun)
 * The name is $NEXAR_GROUP, else the launcher's job id (TORCHELASTIC_RUN_ID, SLURM_JOB_ID.SLURM_STEP_ID,
 * PMIX_NAMESPACE), else "default"; the secret is $NEXAR_JOB_SECRET, else none. NEXAR_RANK=auto is NEXAR_RANK_AUTO.
 *   INVALID_ARGUMENT   an option is out of its range, or the environment names no rank and size
 *   RANK_CLASH         two members ask for one rank, or for different sizes
 *   GROUP_INCOMPLETE   the timeout passed; the text counts who is missing
 *   INTERRUPTED        a signal arrived: this process has left the meeting */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_open(nexar_session* session,
                                                         const nexar_group_options* options,
                                                         nexar_group** out);

/* Leaves the group. Its requests that are still pending end with CLOSED. Waits for nobody. */
NEXAR_API nexar_status nexar_group_free(nexar_group* group);

NEXAR_API nexar_status nexar_group_rank(nexar_group* group, uint32_t* rank);
NEXAR_API nexar_status nexar_group_size(nexar_group* group, uint32_t* size);

/* Which node a rank runs on, 64 hex digits; size at least NEXAR_NODE_TEXT. */
NEXAR_API nexar_status nexar_group_node(nexar_group* group, uint32_t rank, char* text, size_t size);

/* ==== Collectives ====
 * Every rank of the group calls the same function with the same count, dtype, op and root; if not, all get
 * MISMATCH (a rank that only sent, or had its data from the root that it named, may have ended with success
 * before). Every result is bit-identical on all ranks that receive it. count may be 0: then memory may be NULL.
 *
 * Each comes as nexar_x(..., timeout_ms), which blocks, and as nexar_x_start(..., &request). A timeout or a cancel
 * ends the operation on ALL ranks: TIMED_OUT or CANCELLED here, ABORTED naming this rank elsewhere, success where
 * it had ended already. The next operation is not affected.
 *
 * in == out: in place. Otherwise in and out must not overlap.
 *
 * Errors of all of them: INVALID_ARGUMENT (NULL, unknown dtype or op, root >= size, count * size of dtype overflows
 * 2^63, overlap), TABLE_FULL (slots), NO_MEMORY (not even a piece of the ordinary memory, a few MiB, fits into what is
 * left of scratch_limit: end a request, or use nexar_alloc), MISMATCH, TIMED_OUT, CANCELLED, ABORTED, PEER_LOST,
 * LINK_LOST, CLOSED, DAEMON_LOST, DAEMON_UNRESPONSIVE. */

/* out[i] = in_0[i] op in_1[i] op ... on every rank; count elements. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_reduce(nexar_group* group, const void* in, void* out,
                                                         uint64_t count, nexar_dtype dtype,
                                                         nexar_reduce_op op, int64_t timeout_ms);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_reduce_start(nexar_group* group, const void* in, void* out,
                                                               uint64_t count, nexar_dtype dtype,
                                                               nexar_reduce_op op, nexar_request* request);

/* The same, on rank root only; out is not touched elsewhere and may be NULL there. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce(nexar_group* group, const void* in, void* out,
                                                     uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                     uint32_t root, int64_t timeout_ms);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_start(nexar_group* group, const void* in, void* out,
                                                           uint64_t count, nexar_dtype dtype,
                                                           nexar_reduce_op op, uint32_t root,
                                                           nexar_request* request);

/* Root's count elements of data arrive in data on every rank. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_broadcast(nexar_group* group, void* data, uint64_t count,
                                                        nexar_dtype dtype, uint32_t root, int64_t timeout_ms);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_broadcast_start(nexar_group* group, void* data, uint64_t count,
                                                              nexar_dtype dtype, uint32_t root,
                                                              nexar_request* request);

/* Every rank's count elements of `in`, in rank order, in `out` (size * count elements) on every rank.
 * In place: in == out, or in == out + rank * count: this rank's block stands already at its place in out. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gather(nexar_group* group, const void* in, void* out,
                                                         uint64_t count, nexar_dtype dtype,
                                                         int64_t timeout_ms);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gather_start(nexar_group* group, const void* in, void* out,
                                                               uint64_t count, nexar_dtype dtype,
                                                               nexar_request* request);

/* `in` is size blocks of count elements; block r of the reduction arrives in `out` (count elements) of rank
 * r. In place: in == out, or out == in + rank * count: the result replaces this rank's block of in; the other
 * blocks are unspecified afterwards. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatter(nexar_group* group, const void* in, void* out,
                                                             uint64_t count, nexar_dtype dtype,
                                                             nexar_reduce_op op, int64_t timeout_ms);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatter_start(nexar_group* group, const void* in,
                                                                   void* out, uint64_t count,
                                                                   nexar_dtype dtype, nexar_reduce_op op,
                                                                   nexar_request* request);

/* Ends when every rank has started it. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_barrier(nexar_group* group, int64_t timeout_ms);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_barrier_start(nexar_group* group, nexar_request* request);

/* ==== Messages between two ranks ====
 * Messages of one pair of ranks with one tag arrive in the order in which they were sent; a receive takes the
 * oldest that matches. A send ends when the receive that matched it has the data: two ranks that first send to each
 * other and then receive must use nexar_send_start. A timeout or a cancel ends only this side's call. A message to
 * oneself is allowed. */

#define NEXAR_ANY_SOURCE UINT32_MAX
#define NEXAR_ANY_TAG UINT64_MAX /* so tags are 0 .. UINT64_MAX - 1 */

/* What an ended request has to tell. */
typedef struct nexar_completion {
    uint32_t struct_size;
    nexar_status status; /* of the operation */
    uint64_t bytes;      /* recv: received; otherwise 0 */
    uint64_t tag;        /* recv: of the message */
    uint32_t source;     /* recv: rank that sent it; otherwise NEXAR_ANY_SOURCE */
    uint32_t reserved;
} nexar_completion;

NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_send(nexar_group* group, const void* data, uint64_t count,
                                                   nexar_dtype dtype, uint32_t to, uint64_t tag,
                                                   int64_t timeout_ms);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_send_start(nexar_group* group, const void* data, uint64_t count,
                                                         nexar_dtype dtype, uint32_t to, uint64_t tag,
                                                         nexar_request* request);

/* Room for count elements; a shorter message is fine, a longer one is MISMATCH (and is gone). from may be
 * NEXAR_ANY_SOURCE, tag NEXAR_ANY_TAG. completion may be NULL. timeout_ms 0: only what is here already. PEER_LOST
 * when the rank has left, or all others have, and nothing that they sent is left to receive. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_recv(nexar_group* group, void* data, uint64_t count,
                                                   nexar_dtype dtype, uint32_t from, uint64_t tag,
                                                   int64_t timeout_ms, nexar_completion* completion);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_recv_start(nexar_group* group, void* data, uint64_t count,
                                                         nexar_dtype dtype, uint32_t from, uint64_t tag,
                                                         nexar_request* request);

/* ==== Requests ====
 * A request from nexar_x_start is pending until its operation has ended, gives the same answer for ever after, and
 * holds its slot until nexar_request_free. What nexar_wait returns is the operation's own status; TIMED_OUT can also
 * mean that the wait ended first. Then completion->status tells: it is NEXAR_PENDING while the request is pending.
 * completion may be NULL, and is written in every case where the handle was good. */

/* NEXAR_PENDING, or the status of the operation. Never blocks; copies what there is to copy. */
NEXAR_API nexar_status nexar_test(nexar_request request, nexar_completion* completion);

/* Waits for the end. timeout_ms -1: for as long as it takes (the operation has its own deadline).
 *   TIMED_OUT, INTERRUPTED   the request is still pending */
NEXAR_API nexar_status nexar_wait(nexar_request request, int64_t timeout_ms, nexar_completion* completion);

/* Waits until one of count requests (of one session, none 0) has ended, and writes its index. Returns
 * NEXAR_OK whatever the status of that operation: ask nexar_test. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_wait_any(const nexar_request* requests, size_t count,
                                                       int64_t timeout_ms, size_t* index);

/* Asks for an end: CANCELLED if it was in time. Does not wait; the request is yours to wait for and free as
 * before. NEXAR_OK also if the request has ended already. */
NEXAR_API nexar_status nexar_cancel(nexar_request request);

/* Gives the slot back. BAD_STATE: still pending (cancel and wait first). BAD_HANDLE: freed before. */
NEXAR_API nexar_status nexar_request_free(nexar_request request);

#ifdef __cplusplus
}
#endif

#endif
