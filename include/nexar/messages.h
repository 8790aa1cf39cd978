/* nexar/messages.h - operations of two ranks. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_MESSAGES_H
#define NEXAR_MESSAGES_H

#include "operations.h"
#include "types.h"

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

/* `data` has room for count elements; a shorter message is received, a longer one, or one that was sent with another
 * dtype, is MISMATCH for both ranks: it is discarded, and the error names the two lengths or types. Before that a
 * receiver can learn a message's bytes (nexar_probe), but not its type: the program must know it, as from the tag. from
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

#endif
