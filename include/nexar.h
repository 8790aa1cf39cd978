/* nexar.h - the C interface of the nexar daemon of this host: groups of ranks, collectives, messages. */
/* clang-format off */

/* This header and its parts in nexar/ are the manual. A program includes nexar.h, and has all of them; each can be
 * included alone, too. Rules that hold for every function of theirs, so that no comment repeats them:
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

#include "nexar/base.h"            /* the platform, the version, time-outs */
#include "nexar/status.h"          /* what a call returns, and what went wrong */
#include "nexar/types.h"           /* element types and reductions */
#include "nexar/handles.h"         /* sessions, groups and requests, and how one ended */
#include "nexar/session.h"         /* the connection to the daemon of this host */
#include "nexar/memory.h"          /* memory that operations use in place */
#include "nexar/groups.h"          /* forming a group, and leaving it */
#include "nexar/children.h"        /* groups made from a group */
#include "nexar/group_info.h"      /* what a group is, and where its ranks are */
#include "nexar/operations.h"      /* what all operations have: priorities, flags, options */
#include "nexar/collectives.h"     /* operations of all ranks of a group */
#include "nexar/messages.h"        /* operations of two ranks */
#include "nexar/requests.h"        /* waiting for what was started */
#include "nexar/persistent.h"      /* operations that are prepared once and started often */
#include "nexar/op_groups.h"       /* many operations, one submission */

#endif
