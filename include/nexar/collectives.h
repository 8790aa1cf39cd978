/* nexar/collectives.h - operations of all ranks of a group. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_COLLECTIVES_H
#define NEXAR_COLLECTIVES_H

#include "operations.h"
#include "types.h"

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
 * of this group: see Threads in nexar.h), TABLE_FULL (slots), NO_MEMORY (not even a piece of the ordinary memory, a few
 * MiB, fits into what is left of scratch_limit: end a request, or use nexar_alloc; or, on all ranks, this user's other
 * groups have taken what the daemon of the named host allows one user for the steps of collectives, scratch_bytes_max),
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

#endif
