/* nexar/session.h - the connection to the daemon of this host. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_SESSION_H
#define NEXAR_SESSION_H

#include "handles.h"

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
 * Memory in nexar.h), or when the daemon has ended; then call nexar_session_poll until it reports no more. A daemon
 * that does not run does not make it readable: call nexar_session_poll from time to time to detect that. Do not read,
 * write or close the descriptor. */
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

#endif
