/* nexar/requests.h - waiting for what was started. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_REQUESTS_H
#define NEXAR_REQUESTS_H

#include "handles.h"

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

#endif
