/* nexar/op_groups.h - many operations, one submission. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_OP_GROUPS_H
#define NEXAR_OP_GROUPS_H

#include "handles.h"

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

#endif
