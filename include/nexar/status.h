/* nexar/status.h - what a call returns, and what went wrong. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_STATUS_H
#define NEXAR_STATUS_H

#include "base.h"

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

#endif
