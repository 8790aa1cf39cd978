/* nexar.h - the C interface of the nexar daemon of this host: groups of ranks, collectives, messages. */
/* clang-format off */

/* This header is the manual. Rules that hold for every function below, so that no comment repeats them:
 *
 *   Platform  Linux on 64-bit machines. All codes are int32_t; counts, sizes, offsets and requests are 64 bits.
 *   Handles   nexar_session*, nexar_group* and nexar_request are checked numbers, not addresses: using one that
 *             was closed, freed, or never existed is NEXAR_ERR_BAD_HANDLE (or _CLOSED), never a crash. You end a
 *             handle with the matching close or free. A child made by fork() owns none of its parent's handles:
 *             every call on one is NEXAR_ERR_CLOSED there, and the child may open a session of its own.
 *   Threads   Any thread may call any function at any time. One rule: the collectives of one group must be started
 *             in the same order on all ranks. So no two threads may be inside collectives of one group at the same
 *             moment: while one starts a collective, or is inside a blocking one, any other thread's collective on
 *             that group is refused with NEXAR_ERR_BAD_STATE and has no effect. This check does not detect two threads
 *             that take turns in another order than the threads of other ranks. If their calls differ (kind, count,
 *             dtype, op, root), the result is MISMATCH; with a different match_id for each thread (see
 *             nexar_op_options) it always is. Better: a group per thread (nexar_group_dup).
 *             Messages may be sent and received on one group by any number of threads.
 *   Blocking  Nothing blocks except: nexar_session_open and nexar_group_open; short exchanges with the local
 *             daemon (nexar_group_node, nexar_group_info_get, nexar_group_translate, nexar_group_free,
 *             nexar_group_abort, nexar_message_free, nexar_alloc, nexar_free, nexar_register_memfd, nexar_unregister);
 *             blocking operations, nexar_group_split and nexar_group_dup; and the waits. There are no hidden threads
 *             and no signal handlers.
 *   Timeouts  int64_t milliseconds, the same everywhere: NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_NONE, 0: do not
 *             wait, or a positive number. A collective refuses 0, because its ranks never arrive in one instant.
 *             No call hangs: when the daemon's process ends, every pending call ends at once with
 *             NEXAR_ERR_DAEMON_LOST; when it exists but does not run, with NEXAR_ERR_DAEMON_UNRESPONSIVE.
 *   Signals   A signal handler (installed without SA_RESTART, as Python's are) ends nexar_request_wait, _wait_any,
 *             _wait_all and nexar_group_open with NEXAR_ERR_INTERRUPTED; a request stays as it was, wait again.
 *             Blocking operations continue to wait: where Ctrl-C must work, use _start and nexar_request_wait. A
 *             signal ends a sleep only: a handler that runs while the call is awake (it polls for up to spin_us before
 *             it sleeps, and it moves the bytes of staged requests) does not end the wait. A program that must not
 *             miss a signal waits with a timeout and checks its own flag between, or polls nexar_session_fd beside a
 *             signalfd.
 *   Errors    Functions return nexar_status. Out parameters are written only on NEXAR_OK, except where a function
 *             documents otherwise. After any negative status (but nexar_last_error's own) nexar_last_error() on the
 *             same thread has the rank, host, operation and reason, and nexar_perror() prints them. A call that this
 *             process rejects (bad argument, table full) has no effect and no place in the group's order of
 *             operations.
 *   Memory    All memory can be used. Memory from nexar_alloc or nexar_register_memfd is used in place, without
 *             copies; other memory is copied through scratch memory, which counts against this process, up to
 *             scratch_limit. A buffer that begins in such memory and ends past it is refused, INVALID_ARGUMENT.
 *             A blocking operation copies while it works. Of _start there are two cases. While the copies fit
 *             into scratch_limit, it copies the whole input before it returns, and needs no further call to progress;
 *             the output is copied back by the call that first finds that it ended. Beyond, a collective is
 *             *staged*: its bytes move only inside the waits, nexar_request_test, nexar_session_poll and blocking
 *             operations of this session (any of them moves the bytes of all staged requests), and inside
 *             nexar_session_fd. A rank that makes no such call delays the other ranks until the deadline, whose error
 *             names it. A message that does not fit has its own scratch memory while it is pending, above the limit.
 *             Output memory is yours again when the request has ended, and input memory too (only where _start copied
 *             the whole input, already when it returns: do not count on it). On failure the content of output memory
 *             is unspecified.
 *             A count beside a dtype is in elements, not bytes.
 *   Structs   All begin with struct_size. Initialise each with its NEXAR_..._INIT, or options with their _init
 *             function (for languages without macros), then set the fields that you need. A struct_size of 0 is
 *             INVALID_ARGUMENT. An older, shorter struct is accepted, and written, up to its size. A newer, longer one
 *             is accepted if the fields that this library does not know are zero: in every field that is added later,
 *             0 means "as before". Reserved fields must be zero.
 *
 * A rank of a job is this short:
 *
 *     static int failed(const char *what) { nexar_perror(what); return 1; }
 *     ...
 *     nexar_session *session;  nexar_group *group;  float *x;
 *     if (nexar_session_open(NULL, &session) != NEXAR_OK) return failed("session");
 *     // Rank and size: from the environment.
 *     if (nexar_group_open(session, NULL, &group) != NEXAR_OK) return failed("group");
 *     if (nexar_alloc(session, 1000 * sizeof *x, NULL, (void **)&x) != NEXAR_OK) return failed("memory");
 *     ...
 *     if (nexar_all_reduce(group, x, x, 1000, NEXAR_F32, NEXAR_SUM, NULL) != NEXAR_OK) return failed("step 1");
 *     return nexar_group_free(group) | nexar_session_close(session);
 */
#ifndef NEXAR_H
#define NEXAR_H

#include <stddef.h>
#include <stdint.h>

#if defined(UINTPTR_MAX) && UINTPTR_MAX != UINT64_MAX
#error "nexar is for 64-bit machines"
#endif

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
 * Grouped by what you can do about them: the hundreds of a number are its class. A program that gets a number that
 * it does not know (of a newer library or daemon) still knows the class, and may read it as the class's own number,
 * -100, -200, ... One event has one class on all ranks, with two exceptions: a daemon whose process ends is class
 * SESSION for the ranks of its own host and class GROUP for all others; and a request other than a send that is pending
 * when this rank calls nexar_group_free ends with CLOSED here and with ABORTED elsewhere. The numbers are the same in
 * the daemon, on the wire and in logs. Those marked * are reserved: no function returns them yet. */

typedef int32_t nexar_status;
enum {
    NEXAR_OK = 0,
    NEXAR_PENDING = 1, /* not an error: started, not finished */

    /* Fix the call: it had no effect. */
    NEXAR_ERR_CALL = -100, /* any of this class */
    NEXAR_ERR_INVALID_ARGUMENT = -101,
    NEXAR_ERR_BAD_STATE = -102, /* right call, wrong moment: freeing a pending request, memory in use, ... */
    NEXAR_ERR_UNSUPPORTED = -103,
    NEXAR_ERR_NOT_FOUND = -104, /* no daemon listens, or the name is not known */
    NEXAR_ERR_PERMISSION = -105,
    NEXAR_ERR_CLOSED = -106, /* session or group was closed on this side, or is the parent process's. As the status
                                of a started operation: whether it took place is unknown */
    NEXAR_ERR_BAD_HANDLE = -107,

    /* The same call may succeed later, or with more room: it had no effect. */
    NEXAR_ERR_RETRY = -200, /* any of this class */
    NEXAR_ERR_TABLE_FULL = -201, /* too many requests, groups or regions at once: end one first */
    NEXAR_ERR_NO_MEMORY = -202,
    NEXAR_ERR_INTERRUPTED = -203,       /* a signal arrived while waiting */
    NEXAR_ERR_NOT_SENT = -204,          /* * a remote call that certainly was not executed */
    NEXAR_ERR_DEVICE_NO_MEMORY = -205,  /* * */

    /* This operation failed, on all ranks that take part in it; the group can still be used. */
    NEXAR_ERR_OPERATION = -300, /* any of this class */
    NEXAR_ERR_TIMED_OUT = -301, /* its deadline passed on this rank */
    NEXAR_ERR_CANCELLED = -302, /* cancelled by this rank */
    NEXAR_ERR_ABORTED = -303,   /* another rank cancelled or left: the error names it; or another rank's deadline
                                   passed: the error names the late rank, as TIMED_OUT does, and the text has the rank
                                   whose deadline it was */
    NEXAR_ERR_MISMATCH = -304,  /* kind, dtype, op, count, root or match_id differ, or a message exceeds its buffer */
    NEXAR_ERR_MAYBE_EXECUTED = -305,    /* * a remote call whose answer was lost */
    NEXAR_ERR_NO_SUCH_FUNCTION = -306,  /* * */
    NEXAR_ERR_HANDLER_FAILED = -307,    /* * */
    NEXAR_ERR_DEVICE_FAILED = -308,     /* * */

    /* The group was not formed: correct the cause in the text on the ranks that it names, and open it again. */
    NEXAR_ERR_OPEN = -400, /* any of this class */
    NEXAR_ERR_RANK_CLASH = -401,       /* two members ask for one rank */
    NEXAR_ERR_GROUP_INCOMPLETE = -402, /* the deadline passed and a member is missing */
    NEXAR_ERR_OPTIONS_DIFFER = -403,   /* members give different sizes or time-outs: reported to all that wait */
    NEXAR_ERR_JOIN_REFUSED = -404,     /* * the group takes no more members */

    /* The group continues without the lost ranks: use the new handle, and repeat the operations that had not ended. */
    NEXAR_ERR_RECOVERABLE = -500, /* any of this class */
    NEXAR_ERR_GROUP_CHANGED = -501,      /* * this handle's epoch is over */
    NEXAR_ERR_NO_QUORUM = -502,          /* * this side of a partition cannot decide; the partition may heal */
    NEXAR_ERR_RECOVERY_TIMED_OUT = -503, /* * */
    NEXAR_ERR_RECOVERY_MISUSED = -504,   /* * */
    NEXAR_ERR_CHECKPOINT_TIMED_OUT = -505, /* * */

    /* This group is finished: free it, and open a new one with the survivors. */
    NEXAR_ERR_GROUP = -600, /* any of this class */
    /* A rank has failed or left: its process or its node. A message to or from a rank that has only freed the group
     * ends with it, too; the others' messages go on then, and collectives end, as they need all ranks. */
    NEXAR_ERR_PEER_LOST = -601,
    NEXAR_ERR_LINK_LOST = -602, /* two live nodes cannot reach each other */
    NEXAR_ERR_BELOW_MINIMUM = -603, /* * fewer ranks are left than the group allows */
    NEXAR_ERR_EXPELLED = -604,      /* * the other ranks continue without this rank */

    /* This session is finished, or was never opened: open a new one. */
    NEXAR_ERR_SESSION = -700, /* any of this class */
    NEXAR_ERR_DAEMON_LOST = -701,
    NEXAR_ERR_DAEMON_UNRESPONSIVE = -702, /* its process exists, but did not run: see nexar_session_options */
    NEXAR_ERR_SESSION_REFUSED = -703,
    NEXAR_ERR_PROTOCOL_ERROR = -704,

    /* A system call failed: see nexar_error.system_errno and the text. */
    NEXAR_ERR_SYSTEM = -800, /* any of this class */
    NEXAR_ERR_IO = -801
};

enum {
    NEXAR_CLASS_NONE = 0, /* NEXAR_OK, NEXAR_PENDING */
    NEXAR_CLASS_CALL = 1,
    NEXAR_CLASS_RETRY = 2,
    NEXAR_CLASS_OPERATION = 3,
    NEXAR_CLASS_OPEN = 4,
    NEXAR_CLASS_RECOVERABLE = 5,
    NEXAR_CLASS_GROUP = 6,
    NEXAR_CLASS_SESSION = 7,
    NEXAR_CLASS_SYSTEM = 8
};

/* Sizes of texts, with the ending zero. */
enum {
    NEXAR_NODE_TEXT = 65,
    NEXAR_HOST_TEXT = 256,
    NEXAR_NAME_TEXT = 129,
    NEXAR_OP_TEXT = 24,
    NEXAR_ERROR_TEXT = 512,
    NEXAR_ERROR_RANKS = 32
};
#define NEXAR_NO_SEQUENCE UINT64_MAX

typedef struct nexar_error {
    uint32_t struct_size;
    nexar_status code;
    int32_t error_class;    /* NEXAR_CLASS_... of code */
    int32_t system_errno;   /* of the system call that failed; 0: none did */
    int64_t rank;           /* at fault, in its group; -1: none or not known. Of MISMATCH: one of two that differ, and
                               either may be the wrong one: the text says what each called */
    int64_t other_rank;     /* the other rank: of a lost link, a clash, a mismatch, or differing options; -1: none */
    uint64_t sequence;      /* the collective's number in its group, from 0; NEXAR_NO_SEQUENCE: not of a collective, or
                               of one that was refused before it got a number, as a finished group refuses all */
    uint32_t epoch;         /* of the group; 0: not about a group */
    uint32_t pid;           /* of the process at fault, on its host; 0: not known */
    uint32_t reserved;
    uint32_t lost_count;    /* PEER_LOST: how many ranks this rank's daemon knew to be lost (crashed, or with their
                               node) when this error was made; a later error may list more. lost_ranks has the first
                               NEXAR_ERROR_RANKS of them, ascending */
    uint32_t lost_ranks[NEXAR_ERROR_RANKS];
    char op[NEXAR_OP_TEXT];         /* the operation that failed, also where a wait reports it: "all_reduce", ... */
    char group[NEXAR_NAME_TEXT];    /* name of the group; "": not about a group */
    char node[NEXAR_NODE_TEXT];     /* node at fault, 64 hex digits; "" : none or not known */
    char host[NEXAR_HOST_TEXT];     /* its host's name; "": not known */
    char text[NEXAR_ERROR_TEXT];    /* a sentence: what happened, and what is allowed or helps */
    char reserved_text[38];
} nexar_error;
#define NEXAR_ERROR_INIT \
    {sizeof(nexar_error), 0, 0, 0, -1, -1, NEXAR_NO_SEQUENCE, 0, 0, 0, 0, {0}, {0}, {0}, {0}, {0}, {0}, {0}}

/* The last failure of a nexar call on this thread; code NEXAR_OK if there was none. It stays until the next one.
 *   INVALID_ARGUMENT   error is NULL, or struct_size is 0 or too small for a code */
NEXAR_API nexar_status nexar_last_error(nexar_error* error);

/* Prints the last failure of this thread on stderr, in one line, `prefix: ` first unless prefix is NULL or "":
 *     step 1: all_reduce 17 of group "train" (epoch 1): PEER_LOST: rank 3 on gpu7 (pid 77): the connection ended
 * Prints "no error" when there was none. */
NEXAR_API void nexar_perror(const char* prefix);

/* Writes that line, without prefix and newline, into text (always zero-ended, cut to size bytes), and its uncut length
 * without the zero to *length unless that is NULL. */
NEXAR_API nexar_status nexar_error_line(const nexar_error* error, char* text, uint64_t size, uint64_t* length);

/* Names, for people: "PEER_LOST", "f32", "sum"; never NULL ("UNKNOWN"). The strings are static. */
NEXAR_API const char* nexar_status_name(nexar_status status);
/* The hundreds of any number, known or not, without the sign, also beyond the classes above; NEXAR_CLASS_NONE of a
 * number that is not negative. */
NEXAR_API int32_t nexar_status_class(nexar_status status);

/* ==== Time-outs ==== */

/* For an operation: the group's time-out for its kind; for a wait: without a limit; for an option: its documented
 * default. */
#define NEXAR_TIMEOUT_DEFAULT INT64_C(-1)
/* No deadline. (In configuration files and environment variables, which count in seconds, this is 0.) */
#define NEXAR_TIMEOUT_NONE INT64_C(-2)

/* ==== Version ====
 * The rule: until 1.0 each 0.N is an ABI of its own (SONAME libnexar_c.so.0.N, CMake and pkg-config accept 0.N.*);
 * from 1.0 on the major number is (SONAME libnexar_c.so.N). Within one ABI things are only added. */

#define NEXAR_VERSION_MAJOR 0
#define NEXAR_VERSION_MINOR 2
#define NEXAR_VERSION_PATCH 0
/* Of the library that is loaded: major << 16 | minor << 8 | patch, and the same as "0.2.0". */
NEXAR_API uint32_t nexar_version(void);
NEXAR_API const char* nexar_version_text(void);

/* ==== Element types and reductions ====
 * avg is the sum divided once by the number of ranks. Floats below 32 bits are combined as f32 and rounded to their
 * type, to nearest even, once per combination; f8e4m3fn (E4M3 of OCP OFP8 1.0) has no infinity: what passes its
 * largest number is NaN. min and max give NaN if there is one, and order -0 before +0. Sums and products of integers
 * wrap as their type, also inside avg: its sum must fit; its division is towards zero. Logical operators, and all of
 * bool, take anything but 0 for true and give 0 or 1. premul_sum sums each rank's values times that rank's own scalar
 * (nexar_op_options), each product rounded to the type. minloc and maxloc are of pairs (a struct of value and index):
 * the least (greatest) value with its index; at equal values, as -0 and +0 are, the lowest index; a NaN is before all
 * numbers. A group of one rank gets its values as they are, but for premul_sum and logical operators.
 * Floats: sum prod min max avg premul_sum. Integers: these, band bor bxor land lor lxor. bool: min max band bor bxor
 * land lor lxor. Pairs: minloc maxloc. Another reduction of a type is INVALID_ARGUMENT. */

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
    NEXAR_U16 = 11,
    NEXAR_BOOL = 12,     /* 1 byte */
    NEXAR_F8E4M3FN = 13,
    NEXAR_F8E5M2 = 14,
    NEXAR_F32_I32 = 15,  /* pairs: aligned as their value */
    NEXAR_F64_I64 = 16,
    NEXAR_I32_I32 = 17,
    NEXAR_I64_I64 = 18
};

typedef int32_t nexar_reduce_op;
enum {
    NEXAR_SUM = 0,
    NEXAR_PROD = 1,
    NEXAR_MIN = 2,
    NEXAR_MAX = 3,
    NEXAR_AVG = 4,
    NEXAR_BAND = 5,
    NEXAR_BOR = 6,
    NEXAR_BXOR = 7,
    NEXAR_LAND = 8,
    NEXAR_LOR = 9,
    NEXAR_LXOR = 10,
    NEXAR_MINLOC = 11,
    NEXAR_MAXLOC = 12,
    NEXAR_PREMUL_SUM = 13
};
/* Complex types and reductions of your own are not supported (what is not listed is INVALID_ARGUMENT). Instead:
 *   complex    SUM, AVG, and all that only moves: as twice as many F32 or F64. A product is one of your own
 *   your own   nexar_all_gather, then combine the blocks in rank order: the same bits on all ranks. Of long data first
 *              nexar_all_to_all, so that each rank combines its block of all, then nexar_all_gather of the results */

NEXAR_API uint64_t nexar_dtype_size(nexar_dtype dtype); /* bytes; 0: no such type */
NEXAR_API const char* nexar_dtype_name(nexar_dtype dtype);
NEXAR_API const char* nexar_reduce_op_name(nexar_reduce_op op);

/* Rank's share of `count` elements, in rank order: the first count % size ranks have one more. As counts of
 * nexar_reduce_scatterv and nexar_all_gatherv it cuts the parameters of a sharded optimiser.
 *   INVALID_ARGUMENT   NULL; size is 0 or above NEXAR_RANKS_MAX; rank >= size. Nothing is written then */
NEXAR_API nexar_status nexar_shard(uint64_t count, uint32_t size, uint32_t rank, uint64_t* offset, uint64_t* length);

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

/* ==== Session: a connection to the daemon of this host. All other handles belong to one. ==== */

typedef struct nexar_session_options {
    uint32_t struct_size;
    uint32_t slots;                 /* 16 .. 4096, a power of two; 0: 256. At most slots - 4 requests at a time */
    const char* socket_path;        /* NULL: $NEXAR_SOCKET, else /run/nexar/nexard.sock */
    int64_t connect_timeout_ms;     /* default 5000; 0 is refused */
    int64_t daemon_unresponsive_ms; /* a daemon that has not run for so long is given up, up to two seconds later in
                                       case this process was stopped together with it; default 10000; 0 is refused */
    uint64_t scratch_limit;         /* bytes that copies of ordinary memory may take at once; UINT64_MAX: 256 MiB */
    int64_t spin_us;                /* longest busy wait before sleeping; -1: 50; 0: always sleep; at most 1000000 */
} nexar_session_options;
#define NEXAR_SESSION_OPTIONS_INIT \
    {sizeof(nexar_session_options), 0, NULL, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, UINT64_MAX, -1}
NEXAR_API void nexar_session_options_init(nexar_session_options* options, uint64_t size);

/* DAEMON_UNRESPONSIVE is final for the session. A daemon that runs again first ends the session: it starts none of the
 * pending operations, and for all other ranks this rank is lost (PEER_LOST). It cannot revoke the operations that were
 * in progress when it stopped: until it runs again and has withdrawn them, of which this process is not notified, they
 * may still read and write memory of nexar_alloc and nexar_register_memfd, and may still succeed on other ranks. Do not
 * use that memory for anything else: close the session, which unmaps the memory of nexar_alloc, and discard the content
 * of a memfd. Ordinary memory is yours at once. */

/* Opens a session; options may be NULL. Close it with nexar_session_close.
 *   NOT_FOUND             no daemon listens at the socket
 *   PERMISSION            the socket's permissions refuse this user
 *   SESSION_REFUSED       the daemon refused (its reason is in the text): limit reached (sessions_max,
 *                         user_share_percent in its configuration), versions too far apart
 *   DAEMON_UNRESPONSIVE   the daemon did not answer in connect_timeout_ms
 *   IO                    a limit of this process on memory or descriptors (ulimit), or the socket is of another kind,
 *                         such as the admin socket */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_session_open(const nexar_session_options* options,
                                                           nexar_session** out);

/* Ends the session, its groups, its requests and its memory. Calls that wait on other threads end with
 * CLOSED. Messages that were sent before are still delivered, until their deadline: the daemon keeps their memory; the
 * same holds when a process exits (below). Memory from nexar_alloc is unmapped. A rank that closes its session before
 * its last collective ended is PEER_LOST to the other ranks. A process that returns from main or calls exit() without
 * closing has closed its sessions; one that crashes, is killed or calls _exit() ends all its groups with PEER_LOST. */
NEXAR_API nexar_status nexar_session_close(nexar_session* session);

/* For event loops: *fd becomes readable when requests have ended, when bytes of staged requests can be moved (see
 * Memory), or when the daemon has ended; then call nexar_session_poll until it reports no more. A daemon that does not
 * run does not make it readable: call nexar_session_poll from time to time to detect that. Do not read, write or close
 * the descriptor. */
NEXAR_API nexar_status nexar_session_fd(nexar_session* session, int* fd);

/* Writes up to capacity completions of requests that have ended since the last poll and were not freed, each once, and
 * their number. `stride` is sizeof(nexar_completion): the distance of the array's elements, whose struct_size need not
 * be set. Requests stay yours to free. Does not block. Requests inside blocking operations are never reported here.
 * Moves the bytes of staged requests.
 *   DAEMON_LOST, DAEMON_UNRESPONSIVE   the daemon has ended, or does not run; requests that had ended before are
 *                                      reported first */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_session_poll(nexar_session* session, nexar_completion* ended,
                                                           uint64_t stride, uint64_t capacity, uint64_t* count);

/* The identity of this host's node, 64 hex digits; size at least NEXAR_NODE_TEXT. */
NEXAR_API nexar_status nexar_session_node(nexar_session* session, char* text, uint64_t size);

typedef struct nexar_session_stats {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t operations;    /* started */
    uint64_t bytes_copied;  /* in and out of scratch, because the memory was ordinary */
    uint64_t scratch_bytes; /* held now */
    uint64_t regions;       /* from nexar_alloc, nexar_register_memfd, and scratch */
    uint64_t doorbells;     /* how often the daemon was woken */
    uint64_t waits_ready;   /* waits for an operation that had ended */
    uint64_t waits_spun;    /* ... ended while spinning */
    uint64_t waits_yielded; /* ... ended while yielding the processor */
    uint64_t waits_slept;   /* ... slept */
} nexar_session_stats;
#define NEXAR_SESSION_STATS_INIT {sizeof(nexar_session_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

NEXAR_API nexar_status nexar_session_stats_get(nexar_session* session, nexar_session_stats* stats);

/* ==== Memory that the daemon can reach ==== */

enum {
    NEXAR_ALLOC_LAZY = 1,      /* pages are made when first touched (and may fail then), at the latest by the start of
                                  an operation on them, which then is NO_MEMORY; default: all at once */
    NEXAR_ALLOC_HUGE_PAGES = 2 /* transparent huge pages where the system gives them to shared memory, else ordinary */
};

typedef struct nexar_alloc_options {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t flags; /* NEXAR_ALLOC_... */
} nexar_alloc_options;
#define NEXAR_ALLOC_OPTIONS_INIT {sizeof(nexar_alloc_options), 0, 0}
NEXAR_API void nexar_alloc_options_init(nexar_alloc_options* options, uint64_t size);

/* Zeroed, page-aligned memory that operations use in place. bytes > 0. It counts against this process. The limits are
 * checked before the first page is touched. options may be NULL.
 *   NO_MEMORY    the system refused, or the daemon's limit for a session or a user (session_memory_max_bytes,
 *                region_bytes_max, user_share_percent in its configuration)
 *   TABLE_FULL   this session has 1024 regions: of nexar_alloc, nexar_register_memfd, and scratch; or this user has as
 *                many as the daemon allows one (regions_max, user_share_percent) */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_alloc(nexar_session* session, uint64_t bytes,
                                                    const nexar_alloc_options* options, void** out);

/* Frees memory of nexar_alloc. It counts against the user until no process maps it: a child that was forked meanwhile
 * does until it ends or calls execve() or munmap(). BAD_STATE: a request uses it that is pending, or whose end no call
 * has returned yet. NOT_FOUND: not the start of such memory. */
NEXAR_API nexar_status nexar_free(nexar_session* session, void* memory);

/* Makes memory that you mapped yourself usable in place: address is where this process mapped, shared and
 * writable, `bytes` bytes of the memfd `fd` from `offset` on; offset, and with huge pages bytes too, a multiple of
 * the memfd's page size. You keep the descriptor and the mapping. In place only where the daemon's memfds_in_place
 * says that its users trust each other; elsewhere it works as ordinary memory does, by copies. A call that fails has
 * no effect, except for seals when the daemon refuses. Pages that you have not touched are made on this process's
 * account, a few of them at once and the others by the operation that uses them first, at its start: NO_MEMORY if the
 * system lacks them.
 * In place the memfd is sealed: against other lengths, and by the daemon against new writable mappings, write(2), and
 * pages that are taken out (MADV_REMOVE, FALLOC_FL_PUNCH_HOLE; EPERM from now on), and against further seals. So
 * create it with MFD_ALLOW_SEALING, and map it in all its processes before the first registers it. It may be
 * registered again, in other parts and by other sessions of this user, while any part of it is registered (above
 * 1 GiB: what lies in that part), and not any more when the last registration has ended.
 * (The name nexar_register is kept for memory of other kinds.)
 *   UNSUPPORTED        not a memfd, or it does not allow seals; or it was registered before, and is not now
 *   TABLE_FULL         as nexar_alloc
 *   INVALID_ARGUMENT   not aligned; not a shared mapping of these bytes of this memfd; or the memory overlaps memory
 *                      that is registered already */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_register_memfd(nexar_session* session, void* address, uint64_t bytes,
                                                             int fd, uint64_t offset);

/* The reverse; before you unmap. BAD_STATE: a pending request uses it. */
NEXAR_API nexar_status nexar_unregister(nexar_session* session, void* address);

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

/* ---- Children: groups of ranks of a group ----
 * A child is a group like any other: own handle, epoch, order of collectives, time-outs and failures. It outlives its
 * parent, which may be freed first; its members free it like any group. It has children of its own, too. Its name, for
 * people, is the parent's, the number of the collective that made it, and its colour: "train/7.2".
 *
 * nexar_group_split and nexar_group_dup are collectives of the parent: every rank of it calls the same one, in the
 * parent's order of collectives; if not, all get MISMATCH. When the call has succeeded, every member can use the child
 * at once. A call that fails makes no child: if it had succeeded on other members of the child before it failed on one,
 * the child ends there at once, PEER_LOST or LINK_LOST with that member's error as its text.
 *   TABLE_FULL       a member's session, user or daemon has as many groups as it may have: every rank gets the error,
 *                    which names that rank; free some groups. (Only on the rank itself: it has too many requests)
 *   OPTIONS_DIFFER   two members of one child give different values of one of the time-outs below: on all ranks
 *   and those of collectives (below) */

#define NEXAR_COLOUR_UNDEFINED UINT32_MAX

typedef struct nexar_child_options {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t timeout_ms;    /* of the call; default: the parent's for collectives */
    uint64_t match_id;     /* as in nexar_op_options */
    /* Of the child's operations; default: the other members' value, or else the parent's. 0 is refused. */
    int64_t collective_timeout_ms;
    int64_t barrier_timeout_ms;    /* default, where a member sets collective_timeout_ms: as that */
    int64_t rpc_timeout_ms;
    uint64_t user_data;    /* of _start: repeated in the completion */
} nexar_child_options;
#define NEXAR_CHILD_OPTIONS_INIT \
    {sizeof(nexar_child_options), 0, NEXAR_TIMEOUT_DEFAULT, 0, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, \
     NEXAR_TIMEOUT_DEFAULT, 0}
NEXAR_API void nexar_child_options_init(nexar_child_options* options, uint64_t size);

/* A child for each colour, of the ranks that give it. Its ranks are in the order of their keys, equal keys in the order
 * of the parent. NEXAR_COLOUR_UNDEFINED: this rank gets no child, and *child is NULL. options may be NULL; it does not
 * have to be the same on all ranks.
 *   BAD_STATE   another thread is inside a collective of the parent */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_split(nexar_group* parent, uint32_t colour, int64_t key,
                                                          nexar_group** child, const nexar_child_options* options);
/* The completion's `group` is the child, NULL without a colour. Freeing a request whose completion no call has returned
 * frees the child too. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_split_start(nexar_group* parent, uint32_t colour, int64_t key,
                                                                const nexar_child_options* options,
                                                                nexar_request* request);

/* A child with the same ranks: for a library, or a thread, that needs an order of collectives of its own. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_dup(nexar_group* parent, nexar_group** child,
                                                        const nexar_child_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_dup_start(nexar_group* parent, const nexar_child_options* options,
                                                              nexar_request* request);

typedef struct nexar_create_options {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t tag;          /* creates of one list that run at the same time each have their own */
    int64_t timeout_ms;    /* of the call; default: the parent's for collectives. 0 is refused */
    /* Of the new group's operations, the same on all its ranks; default: the parent's. 0 is refused. */
    int64_t collective_timeout_ms;
    int64_t barrier_timeout_ms;    /* default, where collective_timeout_ms is given: as that */
    int64_t rpc_timeout_ms;
    uint64_t user_data;    /* of _start: repeated in the completion */
} nexar_create_options;
#define NEXAR_CREATE_OPTIONS_INIT \
    {sizeof(nexar_create_options), 0, 0, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, \
     NEXAR_TIMEOUT_DEFAULT, 0}
NEXAR_API void nexar_create_options_init(nexar_create_options* options, uint64_t size);

/* A child of listed ranks of the parent, in the order of the list; its name is "train/t0", with the tag. Only the
 * listed ranks call, each with the same list; all others go on, and may be asleep or in a collective. It is no
 * collective of the parent, and has no place in its order: any thread may call. The calls with the same parent, list
 * and tag belong together; one after the other they make one group each. The parent may be freed as soon as the call
 * has succeeded here.
 *   INVALID_ARGUMENT   NULL; a rank that the parent lacks, or that is in the list twice; this rank is not in the list
 *   BAD_STATE          this rank is in a create with this tag already
 *   MISMATCH           this rank and another one wait with lists that differ, with each other in them, and the same
 *                      tag: both calls get the error, which names both, about a second after the later one. No call
 *                      gets it because of one that had ended before
 *   GROUP_INCOMPLETE   the timeout passed; the error names a listed rank that did not call, and says who did, in the
 *                      parent's rank numbers, and in which other create it waited, where that is known. This ends the
 *                      call of this rank; the others wait on, and it may call again. Such a call can complete another
 *                      rank's first one: a program that does not know what the others have got uses a new tag
 *   CANCELLED, INTERRUPTED   likewise
 *   ABORTED, PEER_LOST, LINK_LOST   a listed rank has left the parent, or the parent ended, while this rank waited
 *   OPTIONS_DIFFER, TABLE_FULL      as in nexar_group_open
 *   NO_MEMORY          the daemon's memory that this user may have has no room for the list */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_create(nexar_group* parent, const uint32_t* ranks, uint64_t count,
                                                           nexar_group** group, const nexar_create_options* options);
/* As the others of this section. `ranks` is read during the call only. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_create_start(nexar_group* parent, const uint32_t* ranks,
                                                                 uint64_t count, const nexar_create_options* options,
                                                                 nexar_request* request);

NEXAR_API nexar_status nexar_group_rank(nexar_group* group, uint32_t* rank);
NEXAR_API nexar_status nexar_group_size(nexar_group* group, uint32_t* size);
/* 1 for a group as it was opened; each recovery adds 1. */
NEXAR_API nexar_status nexar_group_epoch(nexar_group* group, uint32_t* epoch);

typedef struct nexar_group_info {
    uint32_t struct_size;
    uint32_t epoch;
    uint32_t rank;
    uint32_t size;
    uint32_t nodes;         /* how many have a rank */
    uint32_t on_failure;    /* the policy: NEXAR_ON_FAILURE_... */
    uint64_t id[3];         /* of this group and of no other, ever; the same on all ranks */
    uint64_t parent_id[3];  /* of the group that it was made from; zeros: it was opened */
    int64_t collective_timeout_ms; /* in effect: as given, agreed or configured; NEXAR_TIMEOUT_NONE */
    int64_t barrier_timeout_ms;
    int64_t rpc_timeout_ms;
    char name[NEXAR_NAME_TEXT];
    char parent_name[NEXAR_NAME_TEXT]; /* "": it was opened */
    char reserved_text[6];
    /* The plan table, fixed when the group is made, and the same on all ranks: how collectives are carried out. */
    uint32_t plan_version;
    uint32_t plan_lanes;           /* segments in flight at the same time */
    uint32_t plan_chunk_bytes;
    uint32_t plan_shards;          /* that carry them: the fewest that a node has */
    uint64_t plan_segment_bytes;   /* combined, exchanged and handed out as a unit */
    uint64_t plan_small_bytes_max; /* beyond it collectives go through the shards */
    uint64_t plan_doubling_bytes_max; /* an all_reduce up to here exchanges whole buffers; beyond it, parts */
} nexar_group_info;
#define NEXAR_GROUP_INFO_INIT \
    {sizeof(nexar_group_info), 0, 0, 0, 0, 0, {0}, {0}, 0, 0, 0, {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0}

/* What the group is. Also of a group that has failed. */
NEXAR_API nexar_status nexar_group_info_get(nexar_group* group, nexar_group_info* info);

#define NEXAR_RANK_NONE UINT32_MAX
/* out[i]: the rank in `to` of the process that has rank ranks[i] in `from`; NEXAR_RANK_NONE: it has none there. Both
 * groups are of one session, and come from one group that was opened: parent, child, children of children. `out` may be
 * `ranks`.
 *   INVALID_ARGUMENT   NULL; count > NEXAR_RANKS_MAX; a rank that `from` lacks; groups of two sessions, or that do not
 *                      come from one: nothing is written then */
NEXAR_API nexar_status nexar_group_translate(nexar_group* from, const uint32_t* ranks, uint64_t count, nexar_group* to,
                                             uint32_t* out);

typedef struct nexar_group_member {
    uint32_t struct_size;
    uint32_t rank;
    uint32_t pid;           /* of its process, as its host has it */
    uint32_t local_rank;    /* among the group's ranks on its node, in rank order */
    uint32_t local_size;    /* how many these are */
    uint32_t reserved;
    char node[NEXAR_NODE_TEXT]; /* 64 hex digits */
    char host[NEXAR_HOST_TEXT]; /* "": not known */
    char reserved_text[7];
} nexar_group_member;
#define NEXAR_GROUP_MEMBER_INIT {sizeof(nexar_group_member), 0, 0, 0, 0, 0, {0}, {0}, {0}}

/* Where a rank is, and which process it is. Ranks of one node have the same `node`; each of them has all these answers.
 *   INVALID_ARGUMENT   NULL; a rank that the group lacks */
NEXAR_API nexar_status nexar_group_member_get(nexar_group* group, uint32_t rank, nexar_group_member* member);

/* The node of a rank, 64 hex digits; size at least NEXAR_NODE_TEXT. */
NEXAR_API nexar_status nexar_group_node(nexar_group* group, uint32_t rank, char* text, uint64_t size);

/* ==== Operations: common options ====
 * Each operation has two functions: nexar_x(..., options) blocks until it has ended and returns its status,
 * nexar_x_start(..., options, &request) returns at once; nexar_sendrecv, nexar_sendrecv_replace and nexar_mprobe only
 * block. Collectives, send and recv have a third one, nexar_x_init: see Persistent operations. options may be NULL. */

/* Which of your operations is next where several wait for the daemon's workers, its memory or the network: the lowest
 * number, but now and then one of the others, so that none waits for ever. It takes nothing from other users, with whom
 * these are shared in turns, whatever they ask for. Each rank asks for itself: ranks of a collective may differ, and a
 * host works on it with the most urgent one of its ranks'. Of a message the sender's counts. Messages are received in
 * the order of the sends all the same, and collectives begin in the order of the calls. */
enum {
    NEXAR_PRIORITY_DEFAULT = -1, /* barrier: critical; small collectives (up to 128 KiB, unless the daemon is configured
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

/* ==== Collectives ====
 * Every rank of the group calls the same function with the same count, dtype, op, root and match_id; if not, all get
 * MISMATCH (a rank that only sent, or had its data from the root that it named or, in a scan, from the ranks below it,
 * may have ended with success before). Every result is bit-identical on all ranks that receive it. count may be 0: then
 * memory may be NULL.
 *
 * A timeout or a cancel ends the operation on ALL ranks: TIMED_OUT or CANCELLED here, ABORTED elsewhere, success where
 * it had ended already. After a timeout the errors of all ranks name the late rank, and the text has the rank whose
 * deadline it was; after a cancel the errors of the other ranks name this rank. The next operation is not affected.
 *
 * in == out: in place; see below where a side has a block for each rank. Otherwise in and out must not overlap. Several
 * ranks of a process may name the same memory as out of all_reduce, all_gather and broadcast; otherwise no rank may
 * write where another one reads or writes.
 *
 * Errors of all of them: INVALID_ARGUMENT (NULL, unknown dtype or op, an op that the dtype lacks, root >= size, count *
 * size of dtype overflows 2^63, overlap, timeout 0), UNSUPPORTED (a node of the group runs a daemon without this
 * operation, type, reduction or flag, and the error names it), BAD_STATE (another thread is inside a collective
 * of this group: see Threads), TABLE_FULL (slots), NO_MEMORY (not even a piece of the ordinary memory, a few MiB, fits
 * into what is left of scratch_limit: end a request, or use nexar_alloc; or, on all ranks, this user's other groups
 * have taken what the daemon of the named host allows one user for the steps of collectives, scratch_bytes_max),
 * MISMATCH, TIMED_OUT, CANCELLED, ABORTED, PEER_LOST, LINK_LOST, CLOSED, DAEMON_LOST, DAEMON_UNRESPONSIVE. */

/* out[i] = in_0[i] op in_1[i] op ... on every rank; count elements. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_reduce(nexar_group* group, const void* in, void* out,
                                                         uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                         const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_reduce_start(nexar_group* group, const void* in, void* out,
                                                               uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                               const nexar_op_options* options,
                                                               nexar_request* request);

/* The same, on rank root only; out is not touched elsewhere and may be NULL there. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce(nexar_group* group, const void* in, void* out,
                                                     uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                     uint32_t root, const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_start(nexar_group* group, const void* in, void* out,
                                                           uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                           uint32_t root, const nexar_op_options* options,
                                                           nexar_request* request);

/* Root's count elements of data arrive in data on every rank. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_broadcast(nexar_group* group, void* data, uint64_t count,
                                                        nexar_dtype dtype, uint32_t root,
                                                        const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_broadcast_start(nexar_group* group, void* data, uint64_t count,
                                                              nexar_dtype dtype, uint32_t root,
                                                              const nexar_op_options* options,
                                                              nexar_request* request);

/* Every rank's count elements of `in`, in rank order, in `out` (size * count elements) on every rank.
 * In place: this rank's block is already at its place in out, out + rank * count elements. Two forms mean the same:
 * in == out (as MPI_IN_PLACE), and in == out + rank * count (as NCCL). So with in == out, too, the block is read from
 * there, and not from the beginning of out:
 *     float *all = ..., *mine = all + rank * 1000;  // of size * 1000; fill in mine[0 .. 999]
 *     nexar_all_gather(group, all, all, 1000, NEXAR_F32, NULL)     // or (group, mine, all, ...) */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gather(nexar_group* group, const void* in, void* out,
                                                         uint64_t count, nexar_dtype dtype,
                                                         const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gather_start(nexar_group* group, const void* in, void* out,
                                                               uint64_t count, nexar_dtype dtype,
                                                               const nexar_op_options* options,
                                                               nexar_request* request);

/* The same with blocks of different lengths: rank r gives counts[r] elements. counts has size entries, the same on
 * every rank (else MISMATCH), and is read before the call returns. out has room for all of them: the blocks stand there
 * one after the other, in rank order, without gaps. In place: this rank's block is already at its place in out, behind
 * counts[0] + ... + counts[rank - 1] elements; in == out and in == that place mean the same. Where a count is 0, in may
 * be NULL, and a rank may end before that one has started the operation. INVALID_ARGUMENT also if counts is NULL, or
 * the sum of counts times size and the size of dtype overflows 2^63. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gatherv(nexar_group* group, const void* in, void* out,
                                                          const uint64_t* counts, nexar_dtype dtype,
                                                          const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gatherv_start(nexar_group* group, const void* in, void* out,
                                                                const uint64_t* counts, nexar_dtype dtype,
                                                                const nexar_op_options* options,
                                                                nexar_request* request);

/* `in` is size blocks of count elements; block r of the reduction arrives in `out` (count elements) of rank
 * r. In place: the result replaces this rank's block, at in + rank * count elements; the other blocks are unspecified
 * afterwards. Two forms mean the same: in == out, and out == in + rank * count. So with in == out, too, the result is
 * written there, and not at the beginning of out:
 *     nexar_reduce_scatter(group, all, all, 1000, NEXAR_F32, NEXAR_SUM, NULL)    // or (group, all, mine, ...)
 *     ... mine[0 .. 999] ...                                                     // as above: all + rank * 1000 */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatter(nexar_group* group, const void* in, void* out,
                                                             uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                             const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatter_start(nexar_group* group, const void* in, void* out,
                                                                   uint64_t count, nexar_dtype dtype,
                                                                   nexar_reduce_op op,
                                                                   const nexar_op_options* options,
                                                                   nexar_request* request);

/* nexar_reduce_scatter with blocks of different lengths: `in` is one block after the other in rank order, without gaps,
 * of counts[0] + ... + counts[size - 1] elements; block r of the reduction, counts[r] elements, arrives in `out` of
 * rank r. counts has size entries, the same on every rank (else MISMATCH), and is read before the call returns. In
 * place: the result replaces this rank's block, behind counts[0] + ... + counts[rank - 1] elements of in, and the other
 * blocks are unspecified afterwards; in == out and out == that place mean the same. Where a count is 0, out may be
 * NULL. INVALID_ARGUMENT also if counts is NULL, or the sum of counts times size and the size of dtype overflows
 * 2^63. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatterv(nexar_group* group, const void* in, void* out,
                                                              const uint64_t* counts, nexar_dtype dtype,
                                                              nexar_reduce_op op, const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatterv_start(nexar_group* group, const void* in, void* out,
                                                                    const uint64_t* counts, nexar_dtype dtype,
                                                                    nexar_reduce_op op,
                                                                    const nexar_op_options* options,
                                                                    nexar_request* request);

/* `in` and `out` are size blocks of count elements. Block r of `in` arrives in `out` of rank r, as the block with this
 * rank's number. In place: in == out. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_to_all(nexar_group* group, const void* in, void* out,
                                                         uint64_t count, nexar_dtype dtype,
                                                         const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_to_all_start(nexar_group* group, const void* in, void* out,
                                                               uint64_t count, nexar_dtype dtype,
                                                               const nexar_op_options* options,
                                                               nexar_request* request);

/* The same with blocks of different lengths, which only their two ranks know: `in` is one block after the other in rank
 * order, without gaps; block r, of send_counts[r] elements, arrives in `out` of rank r, where the blocks of all ranks
 * stand in the same way: of rank r receive_counts[r] elements. Both lists have size entries, are this rank's own, and
 * are read before the call returns. What rank s sends to rank r must be what r receives from s: else MISMATCH, which
 * names both, and nothing of that block is written. There is no in place: in and out may not overlap. A side without
 * elements may be NULL. The operation is not staged: ordinary memory must fit into scratch_limit, or the call fails
 * with NO_MEMORY. INVALID_ARGUMENT also if a list is NULL, or the bytes of one side overflow 2^63. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_to_allv(nexar_group* group, const void* in,
                                                          const uint64_t* send_counts, void* out,
                                                          const uint64_t* receive_counts, nexar_dtype dtype,
                                                          const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_to_allv_start(nexar_group* group, const void* in,
                                                                const uint64_t* send_counts, void* out,
                                                                const uint64_t* receive_counts,
                                                                nexar_dtype dtype,
                                                                const nexar_op_options* options,
                                                                nexar_request* request);

/* Every rank's count elements of `in`, in rank order, in `out` (size * count elements) on rank root only; out is not
 * looked at elsewhere and may be NULL there. In place, at the root: its block is already at its place in out; in == out
 * and in == out + root * count mean the same, as for nexar_all_gather. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_gather(nexar_group* group, const void* in, void* out,
                                                     uint64_t count, nexar_dtype dtype, uint32_t root,
                                                     const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_gather_start(nexar_group* group, const void* in, void* out,
                                                           uint64_t count, nexar_dtype dtype, uint32_t root,
                                                           const nexar_op_options* options,
                                                           nexar_request* request);

/* nexar_gather with blocks of different lengths: rank r gives counts[r] elements, and out, on rank root only, has room
 * for all of them: the blocks stand there one after the other, in rank order, without gaps. counts has size entries,
 * the same on every rank, and is read before the call returns. A difference is MISMATCH; but a rank that has nothing
 * to give or to wait for, by its own list, may have ended well before. In place, at the root: its block is already at
 * its place in out, behind counts[0] + ... + counts[root - 1] elements; in == out and in == that place mean the same.
 * Where a count is 0, in may be NULL. INVALID_ARGUMENT also if counts is NULL, or the sum of counts times size and the
 * size of dtype overflows 2^63. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_gatherv(nexar_group* group, const void* in, void* out,
                                                      const uint64_t* counts, nexar_dtype dtype, uint32_t root,
                                                      const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_gatherv_start(nexar_group* group, const void* in, void* out,
                                                            const uint64_t* counts, nexar_dtype dtype,
                                                            uint32_t root, const nexar_op_options* options,
                                                            nexar_request* request);

/* Block r of rank root's `in` (size blocks of count elements) arrives in `out` (count elements) of rank r; in is not
 * looked at elsewhere and may be NULL there. In place, at the root: its block stays where it is; in == out and
 * out == in + root * count mean the same. No block of in is written. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scatter(nexar_group* group, const void* in, void* out,
                                                      uint64_t count, nexar_dtype dtype, uint32_t root,
                                                      const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scatter_start(nexar_group* group, const void* in, void* out,
                                                            uint64_t count, nexar_dtype dtype, uint32_t root,
                                                            const nexar_op_options* options,
                                                            nexar_request* request);

/* nexar_scatter with blocks of different lengths: `in`, on rank root only, is one block after the other in rank order,
 * without gaps; block r, of counts[r] elements, arrives in `out` of rank r. counts is as in nexar_gatherv. In place, at
 * the root: its block stays where it is, behind counts[0] + ... + counts[root - 1] elements of in; in == out and out ==
 * that place mean the same. No block of in is written. Where a count is 0, out may be NULL. INVALID_ARGUMENT also as
 * for nexar_gatherv. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scatterv(nexar_group* group, const void* in, void* out,
                                                       const uint64_t* counts, nexar_dtype dtype, uint32_t root,
                                                       const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scatterv_start(nexar_group* group, const void* in, void* out,
                                                             const uint64_t* counts, nexar_dtype dtype,
                                                             uint32_t root, const nexar_op_options* options,
                                                             nexar_request* request);

/* The reductions of the ranks so far: on rank r out[i] = ((in_0[i] op in_1[i]) op in_2[i]) ... op in_r[i]; count
 * elements. The ranks are combined in exactly this order, each rounded to dtype: the same inputs give the same bits
 * wherever the ranks run. Rank 0 gets what it would get in a group of one rank. NEXAR_AVG is the mean of the ranks so
 * far: it divides by r + 1. In place: in == out. A rank may end before higher ranks have started it. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scan(nexar_group* group, const void* in, void* out,
                                                   uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                   const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scan_start(nexar_group* group, const void* in, void* out,
                                                         uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                         const nexar_op_options* options,
                                                         nexar_request* request);

/* The same without this rank: on rank r out[i] = (in_0[i] op in_1[i]) ... op in_r-1[i]. Rank 0, also of one rank, gets
 * what changes no value that it is combined with: 0 (sum, premul_sum, bor, bxor, lor, lxor), 1 (prod, land, and of bool
 * band), all ones (band), the largest value (min) or the lowest (max), which of floats is an infinity, except of
 * f8e4m3fn; and of pairs such a value with the largest index (minloc, maxloc). So a product of 1, 2, 3, 4 is 1, 1, 2,
 * 6. NEXAR_AVG is INVALID_ARGUMENT. In place: in == out. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_exclusive_scan(nexar_group* group, const void* in, void* out,
                                                             uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                             const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_exclusive_scan_start(nexar_group* group, const void* in, void* out,
                                                                   uint64_t count, nexar_dtype dtype,
                                                                   nexar_reduce_op op, const nexar_op_options* options,
                                                                   nexar_request* request);

/* Ends when every rank has started it. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_barrier(nexar_group* group, const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_barrier_start(nexar_group* group, const nexar_op_options* options,
                                                            nexar_request* request);

/* ==== Messages between two ranks ====
 * Messages of one pair of ranks with one tag arrive in the order in which they were sent; a receive takes the
 * oldest that matches. A send ends when the receive that matched it has the data: two ranks that first send to each
 * other and then receive must use nexar_sendrecv, or nexar_send_start. A message to oneself is allowed.
 * timeout_ms 0: a receive takes only a message that has arrived; a send succeeds only if its receive waits already.
 * The receiver's host decides that: a send to another host waits for its answer, and one that is not matched ends with
 * TIMED_OUT and is not delivered. A message that is matched has the group's time-out to arrive.
 * A timeout or a cancel ends only this side's call: a message that had begun to arrive waits, whole, for the next
 * receive; if a later receive has got a newer one already, its send ends with ABORTED instead. A send that ended with
 * TIMED_OUT or CANCELLED takes its message back; it may have been delivered all the same: the receive may have ended
 * just before. A receive that was taking such a message takes the next one that matches; where a later receive has got
 * one of those already, the order would be wrong: it ends with ABORTED naming the sender. */

#define NEXAR_ANY_SOURCE UINT32_MAX
#define NEXAR_ANY_TAG UINT64_MAX /* so tags are 0 .. UINT64_MAX - 1 */

NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_send(nexar_group* group, const void* data, uint64_t count,
                                                   nexar_dtype dtype, uint32_t to, uint64_t tag,
                                                   const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_send_start(nexar_group* group, const void* data, uint64_t count,
                                                         nexar_dtype dtype, uint32_t to, uint64_t tag,
                                                         const nexar_op_options* options, nexar_request* request);

/* `data` has room for count elements; a shorter message is received, a longer one is MISMATCH (and is discarded). from
 * may be NEXAR_ANY_SOURCE, tag NEXAR_ANY_TAG. completion may be NULL. PEER_LOST when the rank, or all other ranks, have
 * left and none of their messages is left to receive. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_recv(nexar_group* group, void* data, uint64_t count,
                                                   nexar_dtype dtype, uint32_t from, uint64_t tag,
                                                   nexar_completion* completion, const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_recv_start(nexar_group* group, void* data, uint64_t count,
                                                         nexar_dtype dtype, uint32_t from, uint64_t tag,
                                                         const nexar_op_options* options, nexar_request* request);

/* Sends and receives in one call, so that ranks which exchange data cannot wait for each other: a receive and a send
 * that are in progress at the same time. in and out must not overlap. Ends when both have ended; options are those of
 * each. completion, which may be NULL, is the receive's, and written when the receive has succeeded. Status: the
 * send's if that failed, else the receive's; a failure of one does not end the other. Without _start: start a receive
 * and a send.
 *   TABLE_FULL, NO_MEMORY   no room for both: nothing was sent or received */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_sendrecv(nexar_group* group, const void* in, uint64_t send_count,
                                                       nexar_dtype send_dtype, uint32_t to, uint64_t send_tag,
                                                       void* out, uint64_t receive_count, nexar_dtype receive_dtype,
                                                       uint32_t from, uint64_t receive_tag,
                                                       nexar_completion* completion, const nexar_op_options* options);

/* As nexar_sendrecv with one memory, whose data is sent, and then replaced by the message that is received. Of both
 * messages count elements of dtype, or less of the one that is received. The data is copied first, so it needs as much
 * memory of this process again. After a failure the content of data is unspecified. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_sendrecv_replace(nexar_group* group, void* data, uint64_t count,
                                                               nexar_dtype dtype, uint32_t to, uint64_t send_tag,
                                                               uint32_t from, uint64_t receive_tag,
                                                               nexar_completion* completion,
                                                               const nexar_op_options* options);

/* A message whose memory is in pieces, one after the other, each of data and count elements. A message is the same in
 * whatever pieces it is sent and received; a shorter one than the pieces of a receive fills the first of them. The
 * array is read before the call returns. Each piece is in ordinary memory or in memory of nexar_alloc or
 * nexar_register_memfd, where it is used in place. piece_count may be 0, a piece's count too.
 *   INVALID_ARGUMENT   also: pieces is NULL or has more than NEXAR_PIECES_MAX; pieces of a receive overlap */
#define NEXAR_PIECES_MAX 256
typedef struct nexar_piece {
    void* data;
    uint64_t count;
} nexar_piece;
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_sendv(nexar_group* group, const nexar_piece* pieces,
                                                    uint64_t piece_count, nexar_dtype dtype, uint32_t to,
                                                    uint64_t tag, const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_sendv_start(nexar_group* group, const nexar_piece* pieces,
                                                          uint64_t piece_count, nexar_dtype dtype, uint32_t to,
                                                          uint64_t tag, const nexar_op_options* options,
                                                          nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_recvv(nexar_group* group, const nexar_piece* pieces,
                                                    uint64_t piece_count, nexar_dtype dtype, uint32_t from,
                                                    uint64_t tag, nexar_completion* completion,
                                                    const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_recvv_start(nexar_group* group, const nexar_piece* pieces,
                                                          uint64_t piece_count, nexar_dtype dtype, uint32_t from,
                                                          uint64_t tag, const nexar_op_options* options,
                                                          nexar_request* request);

/* Waits until a message is there that nexar_recv with the same from and tag would take, and leaves it: completion has
 * its source, tag and bytes. timeout_ms 0 does not wait: TIMED_OUT if there is none. A message for which a receive
 * waits is never found. Between the probe and the receive another thread may take the message: see nexar_mprobe.
 * PEER_LOST as nexar_recv. A send with timeout_ms 0 needs a receive that waits, and is not found, here and below. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_probe(nexar_group* group, uint32_t from, uint64_t tag,
                                                    nexar_completion* completion, const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_probe_start(nexar_group* group, uint32_t from, uint64_t tag,
                                                          const nexar_op_options* options, nexar_request* request);

/* As nexar_probe, and sets the message apart: no receive and no probe of any thread finds it any more, until
 * nexar_mrecv takes it or nexar_message_free puts it back to its place, where it is older than what came later. Its
 * send stays pending, with its deadline. A rank may have set 256 messages apart (TABLE_FULL). When it leaves the
 * group, or its session ends, they are as messages that nobody received. A nexar_message is a number, good on the rank
 * that got it, in this group; 0 is never one. completion may be NULL. Without _start: where a program must not block,
 * it starts a probe, and calls this with timeout_ms 0 when that has ended; TIMED_OUT then: another thread was first. */
typedef uint64_t nexar_message;
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_mprobe(nexar_group* group, uint32_t from, uint64_t tag,
                                                     nexar_message* message, nexar_completion* completion,
                                                     const nexar_op_options* options);

/* Receives the message that nexar_mprobe has set apart; as nexar_recv in all else. The message's number ends with it,
 * however it ends: after TIMED_OUT and CANCELLED the message is back at its place.
 *   BAD_HANDLE   the message was received or freed, or never was one of this rank
 *   ABORTED      its sender took it back: it cancelled, or its deadline passed */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_mrecv(nexar_group* group, nexar_message message, void* data,
                                                    uint64_t count, nexar_dtype dtype, nexar_completion* completion,
                                                    const nexar_op_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_mrecv_start(nexar_group* group, nexar_message message, void* data,
                                                          uint64_t count, nexar_dtype dtype,
                                                          const nexar_op_options* options, nexar_request* request);

/* Puts the message back: the next receive that matches it may take it. A short exchange with the local daemon.
 *   BAD_HANDLE   as nexar_mrecv */
NEXAR_API nexar_status nexar_message_free(nexar_group* group, nexar_message message);

/* ==== Requests ====
 * A request from nexar_x_start is pending until its operation has ended, has the same status from then on, and holds
 * its slot until nexar_request_free. A wait whose own timeout_ms has passed returns NEXAR_PENDING; every other value of
 * a wait or test is the operation's own status, or an error of the call (BAD_HANDLE, CLOSED, INVALID_ARGUMENT,
 * INTERRUPTED). completion may be NULL; it is written whenever the handle and its struct_size are valid, and then its
 * status is NEXAR_PENDING exactly while the request is pending. */

/* NEXAR_PENDING, or the status of the operation. Never blocks; copies bytes that can be copied. */
NEXAR_API nexar_status nexar_request_test(nexar_request request, nexar_completion* completion);

/* Waits for the end. INTERRUPTED: a signal arrived, the request is still pending. */
NEXAR_API nexar_status nexar_request_wait(nexar_request request, int64_t timeout_ms, nexar_completion* completion);

/* Finds one of count requests (at most 4096, of one session; those that are 0 or inactive are skipped) that has ended,
 * or waits until one has: NEXAR_OK, its index and its completion, which has the operation's status. NEXAR_PENDING: none
 * has ended, and nothing is written. INVALID_ARGUMENT: count is 0, or all requests are 0 or inactive. The array is not
 * written: where it is used again, set the entry to 0 when its request has been handled (and freed), else the next call
 * finds that one again, or is BAD_HANDLE. A persistent one is inactive by then, and may stay. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_request_test_any(const nexar_request* requests, uint64_t count,
                                                               uint64_t* index, nexar_completion* completion);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_request_wait_any(const nexar_request* requests, uint64_t count,
                                                               int64_t timeout_ms, uint64_t* index,
                                                               nexar_completion* completion);

/* As test_any and wait_any, but all that have ended: *ended of them, at least 1, with their places in the array in
 * indices, ascending, and their completions (as for wait_all) in the same order: the k-th is of requests[indices[k]].
 * indices and completions (or NULL) have room for count. NEXAR_PENDING: none has ended, and *ended is 0. Set the
 * entries of those that you have handled to 0, as above. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_request_test_some(const nexar_request* requests, uint64_t count,
                                                                uint64_t* indices, uint64_t* ended,
                                                                nexar_completion* completions, uint64_t stride);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_request_wait_some(const nexar_request* requests, uint64_t count,
                                                                int64_t timeout_ms, uint64_t* indices,
                                                                uint64_t* ended, nexar_completion* completions,
                                                                uint64_t stride);

/* Waits until all of count requests (as above; those that are 0 count as ended) have ended. NEXAR_OK: all succeeded, or
 * there are none (count 0: requests may be NULL). A failure: the status of the first one, in the array's order, that
 * failed, when all have ended. NEXAR_PENDING: the timeout has passed. completions: NULL, or an array of count elements
 * at a distance of `stride` = sizeof(nexar_completion) bytes; all are written, also those of pending requests, except
 * for those whose request is 0. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_request_wait_all(const nexar_request* requests, uint64_t count,
                                                               int64_t timeout_ms, nexar_completion* completions,
                                                               uint64_t stride);

/* Asks the daemon to end the request: its status is CANCELLED if that is in time. Does not wait; wait for the request
 * and free it as before. NEXAR_OK also if the request has ended already. */
NEXAR_API nexar_status nexar_request_cancel(nexar_request request);

/* Frees the request's slot. BAD_STATE: still pending (cancel and wait first). BAD_HANDLE: freed before. */
NEXAR_API nexar_status nexar_request_free(nexar_request request);

/* ==== Persistent operations: prepared once, started often ====
 * nexar_x_init takes what nexar_x_start takes, checks it, and returns a request that is *inactive*: nothing was
 * started, and it has no place in the group's order. nexar_request_start starts it, with what the memory holds then:
 * no argument is checked again, nothing is planned, and no memory is asked for. From then on it is *active*, like a
 * request of _start, for nexar_request_test, _wait, _wait_any, ..., _cancel and nexar_session_poll, until one of them
 * has returned its end. Then it is inactive again, with the same handle, and may be started again, until
 * nexar_request_free.
 *   - Inactive: test and wait return at once, with the status and completion of the last start (before the first one
 *     NEXAR_OK); so does wait_all. test_any, wait_any, test_some, wait_some and nexar_session_poll skip it, as a
 *     request that is 0. Cancel has no effect (NEXAR_OK). Free frees it.
 *   - Active: start is BAD_STATE, also when it has ended and no call has returned that; free is BAD_STATE while it is
 *     pending. If one thread waits for it and another one starts it again, the first may wait for that start, too.
 *   - A start is a call like _start: collectives are matched by the order of starts on all ranks, and a persistent
 *     operation matches any other of the same arguments. timeout_ms counts from each start; match_id, user_data and
 *     scalar are those given to init, and are read there, as counts are. sequence is new in each start.
 *   - Memory: from init to free the request uses its memory: nexar_free and nexar_unregister are BAD_STATE. Its content
 *     is yours while the request is inactive. What is copied (ordinary memory) has its scratch memory for as long,
 *     which counts towards scratch_limit; each start copies the input.
 *   - The request holds one of the session's slots from init to free. It is of one handle of its group: when that is
 *     freed, start is CLOSED. Of a group that has failed, or that has another epoch by now, each start ends with the
 *     error, as those of _start do.
 * Init is local: it does not wait for other ranks. Errors: those of _start that concern arguments, memory and slots. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_reduce_init(nexar_group* group, const void* in, void* out,
                                                              uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                              const nexar_op_options* options,
                                                              nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_init(nexar_group* group, const void* in, void* out,
                                                          uint64_t count, nexar_dtype dtype, nexar_reduce_op op,
                                                          uint32_t root, const nexar_op_options* options,
                                                          nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_broadcast_init(nexar_group* group, void* data, uint64_t count,
                                                             nexar_dtype dtype, uint32_t root,
                                                             const nexar_op_options* options, nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gather_init(nexar_group* group, const void* in, void* out,
                                                              uint64_t count, nexar_dtype dtype,
                                                              const nexar_op_options* options,
                                                              nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_gatherv_init(nexar_group* group, const void* in, void* out,
                                                               const uint64_t* counts, nexar_dtype dtype,
                                                               const nexar_op_options* options,
                                                               nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatter_init(nexar_group* group, const void* in, void* out,
                                                                  uint64_t count, nexar_dtype dtype,
                                                                  nexar_reduce_op op, const nexar_op_options* options,
                                                                  nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_reduce_scatterv_init(nexar_group* group, const void* in, void* out,
                                                                   const uint64_t* counts, nexar_dtype dtype,
                                                                   nexar_reduce_op op,
                                                                   const nexar_op_options* options,
                                                                   nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_to_all_init(nexar_group* group, const void* in, void* out,
                                                              uint64_t count, nexar_dtype dtype,
                                                              const nexar_op_options* options,
                                                              nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_all_to_allv_init(nexar_group* group, const void* in,
                                                               const uint64_t* send_counts, void* out,
                                                               const uint64_t* receive_counts, nexar_dtype dtype,
                                                               const nexar_op_options* options,
                                                               nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_gather_init(nexar_group* group, const void* in, void* out,
                                                          uint64_t count, nexar_dtype dtype, uint32_t root,
                                                          const nexar_op_options* options, nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_gatherv_init(nexar_group* group, const void* in, void* out,
                                                           const uint64_t* counts, nexar_dtype dtype, uint32_t root,
                                                           const nexar_op_options* options, nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scatter_init(nexar_group* group, const void* in, void* out,
                                                           uint64_t count, nexar_dtype dtype, uint32_t root,
                                                           const nexar_op_options* options, nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scatterv_init(nexar_group* group, const void* in, void* out,
                                                            const uint64_t* counts, nexar_dtype dtype, uint32_t root,
                                                            const nexar_op_options* options, nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_scan_init(nexar_group* group, const void* in, void* out, uint64_t count,
                                                        nexar_dtype dtype, nexar_reduce_op op,
                                                        const nexar_op_options* options, nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_exclusive_scan_init(nexar_group* group, const void* in, void* out,
                                                                  uint64_t count, nexar_dtype dtype,
                                                                  nexar_reduce_op op, const nexar_op_options* options,
                                                                  nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_barrier_init(nexar_group* group, const nexar_op_options* options,
                                                           nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_send_init(nexar_group* group, const void* data, uint64_t count,
                                                        nexar_dtype dtype, uint32_t to, uint64_t tag,
                                                        const nexar_op_options* options, nexar_request* request);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_recv_init(nexar_group* group, void* data, uint64_t count,
                                                        nexar_dtype dtype, uint32_t from, uint64_t tag,
                                                        const nexar_op_options* options, nexar_request* request);

/* Starts an inactive persistent request.
 *   BAD_STATE          it is active; or another thread is inside a collective of its group
 *   INVALID_ARGUMENT   it is not persistent
 *   CLOSED             its group was freed
 *   BAD_HANDLE, DAEMON_LOST, DAEMON_UNRESPONSIVE */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_request_start(nexar_request request);

/* Starts all of count requests (at most 4096, of one session; those that are 0 are skipped), in the array's order, as
 * one submission: the daemon is woken once at most. Either all are started, or none is, and the error's text names the
 * first one that cannot be: errors as above. Where the session has ended (DAEMON_LOST, ...), they are active, and each
 * wait for them returns that error. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_request_start_all(const nexar_request* requests, uint64_t count);

/* ==== Op groups: many operations, one submission ====
 * Between nexar_ops_begin and nexar_ops_end what this thread starts in the session (_start functions of operations,
 * _split_start, _dup_start, nexar_request_start) is prepared and kept. nexar_ops_end submits all of it, in the order
 * of the calls, and wakes the daemon once at most; then nexar_request_wait_all waits for all. Other threads are not
 * concerned, except that their collectives on the same groups are BAD_STATE until the end, since the order would
 * differ.
 *   - Each _start returns its own error at once, and then has no effect; what was started before stays in the op group.
 *     nexar_ops_drop gives all of it up. What the daemon refuses is the status of that request, and of no other.
 *   - Until the end these requests are pending, and nothing can end them: waits (but with a timeout of 0) and cancel
 *     are BAD_STATE. So are all blocking operations of this thread.
 *   - Deadlines count from the end. Ordinary input memory is copied by _start; do not change any before the end.
 *   - Op groups may be nested: the outermost nexar_ops_end submits.
 * A thread that ends before nexar_ops_end has started nothing; its requests stay pending until the session's end. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_ops_begin(nexar_session* session);
/* DAEMON_LOST, DAEMON_UNRESPONSIVE: also each wait for one of the requests returns that.
 *   BAD_STATE   this thread has not begun one */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_ops_end(nexar_session* session);
/* Ends the outermost op group of this thread, and submits nothing: its requests are freed, persistent ones inactive.
 *   BAD_STATE   as nexar_ops_end */
NEXAR_API nexar_status nexar_ops_drop(nexar_session* session);

#ifdef __cplusplus
}
#endif

#endif
