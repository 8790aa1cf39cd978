/* nexar/persistent.h - operations that are prepared once and started often. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_PERSISTENT_H
#define NEXAR_PERSISTENT_H

#include "operations.h"
#include "types.h"

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

#endif
