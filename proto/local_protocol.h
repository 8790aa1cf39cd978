/* local_protocol.h - the few fixed messages on the local SOCK_SEQPACKET socket. C11. docs/protocol/shm.md
 * shows how.
 *
 *     client                      daemon
 *     HELLO              ──▶
 *                        ◀──      WELCOME + 2 descriptors (daemon page, alive page)     or REFUSED
 *     LEND + 1           ──▶      one end of a socketpair, on which comes LEND + 1: a memfd; or its end, and
 * why is the answer to what follows ATTACH             ──▶      the memfd that was lent is the control
 * segment, and mapped ◀──      READY                                                 or REFUSED REGION_ADD
 * ──▶      so is it a region, with LEND before it as above; or REGION_ADD + 1: a memfd of the client's;
 * answered in the slot that it names BELL               ──▶      look at the submission ring ◀──      BELL
 * look at the completion ring; only when the client asked for it GOODBYE            ──▶      an orderly end
 *
 * Every message is one packet of exactly its struct's size, with exactly the number of descriptors named
 * here. */
#ifndef NEXAR_LOCAL_PROTOCOL_H
#define NEXAR_LOCAL_PROTOCOL_H

#include <stdint.h>

#include "shm_layout.h"

enum {
    NEXAR_LOCAL_VERSION = 2,
    NEXAR_LOCAL_VERSION_MIN = 2 /* N - 1, once there is one after 0.2.0 */
};
#define NEXAR_LOCAL_SOCKET "/run/nexar/nexard.sock"
#define NEXAR_LOCAL_MAGIC UINT32_C(0x4c52584e) /* "NXRL" */

enum {
    NEXAR_MSG_HELLO = 1,
    NEXAR_MSG_WELCOME = 2,
    NEXAR_MSG_REFUSED = 3,
    NEXAR_MSG_ATTACH = 4,
    NEXAR_MSG_READY = 5,
    NEXAR_MSG_REGION_ADD = 6,
    NEXAR_MSG_BELL = 7,
    NEXAR_MSG_GOODBYE = 8,
    NEXAR_MSG_LEND = 9
};
enum { NEXAR_MSG_BYTES_MAX = 256, NEXAR_MSG_FDS_MAX = 4, NEXAR_MSG_TEXT_BYTES = 160 };

typedef struct nexar_msg_head {
    uint32_t magic;
    uint32_t type;
} nexar_msg_head;

typedef struct nexar_msg_hello {
    nexar_msg_head head;
    uint32_t version_min; /* the versions that the library speaks */
    uint32_t version_max;
    uint32_t library_version; /* nexar_version() */
    uint32_t reserved[3];
} nexar_msg_hello;

typedef struct nexar_msg_welcome {
    nexar_msg_head head;
    uint32_t version; /* that both will speak */
    uint32_t reserved0;
    uint64_t session;
    uint64_t region_bytes_max; /* of one region, and of all */
    uint64_t session_bytes_max;
    uint8_t node[32];
} nexar_msg_welcome;

typedef struct nexar_msg_refused {
    nexar_msg_head head;
    int32_t code;
    uint32_t reserved;
    char text[NEXAR_MSG_TEXT_BYTES]; /* zero-ended */
} nexar_msg_refused;

typedef struct nexar_msg_attach {
    nexar_msg_head head;
    uint32_t slots;
    uint32_t reserved;
    uint64_t control_bytes; /* nexar_shm_control_bytes(slots) */
} nexar_msg_attach;

/* Asks for memory of the daemon's, which ATTACH or REGION_ADD then names. A session has one such memfd at a
 * time: the next LEND takes back what was not used. */
typedef struct nexar_msg_lend {
    nexar_msg_head head;
    uint64_t bytes;
    uint64_t reserved; /* 0 */
} nexar_msg_lend;

/* Kinds of memory. */
enum {
    NEXAR_MEMORY_MEMFD = 1, /* comes with the message; only where the daemon's memfds_in_place allows that */
    NEXAR_MEMORY_LENT = 2   /* was lent */
};

typedef struct nexar_msg_region_add {
    nexar_msg_head head;
    uint32_t slot;
    uint32_t generation;
    uint32_t region; /* the session's number for it; never used again */
    uint32_t kind;   /* NEXAR_MEMORY_... */
    uint64_t offset; /* in the memfd; a multiple of its page size; of lent memory 0 */
    uint64_t bytes;
    uint64_t reserved; /* 0 */
} nexar_msg_region_add;

/* READY, BELL and GOODBYE are a bare nexar_msg_head. */

NEXAR_SHM_ASSERT(sizeof(nexar_msg_head) == 8);
NEXAR_SHM_ASSERT(sizeof(nexar_msg_hello) == 32);
NEXAR_SHM_ASSERT(sizeof(nexar_msg_welcome) == 72);
NEXAR_SHM_ASSERT(sizeof(nexar_msg_refused) == 176);
NEXAR_SHM_ASSERT(sizeof(nexar_msg_attach) == 24);
NEXAR_SHM_ASSERT(sizeof(nexar_msg_lend) == 24);
NEXAR_SHM_ASSERT(sizeof(nexar_msg_region_add) == 48);

#endif
