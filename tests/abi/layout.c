/* Every offset that two processes, or a program and a library of different age, must agree on. Compiled,
 * never run. The C ABI (nexar.h): a line is never changed while the ABI has its number (docs/abi.md), only
 * added. What is shared with the daemon changes with NEXAR_LOCAL_VERSION only. */
#include <nexar.h>
#include <stddef.h>

#include "local_protocol.h"
#include "shm_layout.h"

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)

_Static_assert(NEXAR_VERSION_MAJOR == PROJECT_MAJOR && NEXAR_VERSION_MINOR == PROJECT_MINOR &&
                   NEXAR_VERSION_PATCH == PROJECT_PATCH,
               "include/nexar.h and CMakeLists.txt say different versions");

/* include/nexar.h: a struct may grow at its end. */
AT(nexar_error, struct_size, 0);
AT(nexar_error, code, 4);
AT(nexar_error, error_class, 8);
AT(nexar_error, system_errno, 12);
AT(nexar_error, rank, 16);
AT(nexar_error, other_rank, 24);
AT(nexar_error, sequence, 32);
AT(nexar_error, epoch, 40);
AT(nexar_error, pid, 44);
AT(nexar_error, lost_count, 52);
AT(nexar_error, lost_ranks, 56);
AT(nexar_error, op, 184);
AT(nexar_error, group, 208);
AT(nexar_error, node, 337);
AT(nexar_error, host, 402);
AT(nexar_error, text, 658);
SIZE(nexar_error, 1208);
AT(nexar_completion, struct_size, 0);
AT(nexar_completion, status, 4);
AT(nexar_completion, request, 8);
AT(nexar_completion, user_data, 16);
AT(nexar_completion, group, 24);
AT(nexar_completion, sequence, 32);
AT(nexar_completion, bytes, 40);
AT(nexar_completion, tag, 48);
AT(nexar_completion, source, 56);
AT(nexar_completion, epoch, 60);
SIZE(nexar_completion, 64);
AT(nexar_session_options, struct_size, 0);
AT(nexar_session_options, slots, 4);
AT(nexar_session_options, socket_path, 8);
AT(nexar_session_options, connect_timeout_ms, 16);
AT(nexar_session_options, daemon_unresponsive_ms, 24);
AT(nexar_session_options, scratch_limit, 32);
AT(nexar_session_options, spin_us, 40);
SIZE(nexar_session_options, 48);
AT(nexar_session_stats, struct_size, 0);
AT(nexar_session_stats, operations, 8);
AT(nexar_session_stats, bytes_copied, 16);
AT(nexar_session_stats, scratch_bytes, 24);
AT(nexar_session_stats, regions, 32);
AT(nexar_session_stats, doorbells, 40);
AT(nexar_session_stats, waits_ready, 48);
AT(nexar_session_stats, waits_spun, 56);
AT(nexar_session_stats, waits_yielded, 64);
AT(nexar_session_stats, waits_slept, 72);
SIZE(nexar_session_stats, 80);
AT(nexar_alloc_options, struct_size, 0);
AT(nexar_alloc_options, flags, 8);
SIZE(nexar_alloc_options, 16);
AT(nexar_group_options, struct_size, 0);
AT(nexar_group_options, size, 4);
AT(nexar_group_options, rank, 8);
AT(nexar_group_options, name, 16);
AT(nexar_group_options, job_secret, 24);
AT(nexar_group_options, timeout_ms, 32);
AT(nexar_group_options, collective_timeout_ms, 40);
AT(nexar_group_options, barrier_timeout_ms, 48);
AT(nexar_group_options, rpc_timeout_ms, 56);
AT(nexar_group_options, user_data, 64);
SIZE(nexar_group_options, 72);
AT(nexar_op_options, struct_size, 0);
AT(nexar_op_options, priority, 4);
AT(nexar_op_options, timeout_ms, 8);
AT(nexar_op_options, match_id, 16);
AT(nexar_op_options, user_data, 24);
AT(nexar_op_options, flags, 32);
AT(nexar_op_options, scalar, 40);
SIZE(nexar_op_options, 48);
AT(nexar_piece, data, 0);
AT(nexar_piece, count, 8);
SIZE(nexar_piece, 16);
SIZE(nexar_message, 8);
SIZE(nexar_request, 8);
SIZE(nexar_status, 4);
SIZE(nexar_dtype, 4);
SIZE(nexar_reduce_op, 4);

/* proto/shm_layout.h */
AT(nexar_shm_extent, region, 0);
AT(nexar_shm_extent, entries, 4);
AT(nexar_shm_extent, offset, 8);
SIZE(nexar_shm_extent, 16);
AT(nexar_shm_piece, region, 0);
AT(nexar_shm_piece, offset, 8);
AT(nexar_shm_piece, bytes, 16);
SIZE(nexar_shm_piece, 24);
AT(nexar_shm_descriptor, kind, 0);
AT(nexar_shm_descriptor, dtype, 1);
AT(nexar_shm_descriptor, op, 2);
AT(nexar_shm_descriptor, priority, 3);
AT(nexar_shm_descriptor, flags, 4);
AT(nexar_shm_descriptor, group, 8);
AT(nexar_shm_descriptor, peer, 12);
AT(nexar_shm_descriptor, count, 16);
AT(nexar_shm_descriptor, tag, 24);
AT(nexar_shm_descriptor, match_id, 32);
AT(nexar_shm_descriptor, timeout_ns, 40);
AT(nexar_shm_descriptor, in, 48);
AT(nexar_shm_descriptor, out, 64);
AT(nexar_shm_descriptor, args, 80);
AT(nexar_shm_descriptor, epoch, 96);
AT(nexar_shm_descriptor, stage_windows, 100);
AT(nexar_shm_descriptor, scalar, 104);
SIZE(nexar_shm_descriptor, 128);
AT(nexar_shm_result, status, 0);
AT(nexar_shm_result, source, 4);
AT(nexar_shm_result, bytes, 8);
AT(nexar_shm_result, tag, 16);
AT(nexar_shm_result, group, 24);
AT(nexar_shm_result, rank, 28);
AT(nexar_shm_result, size, 32);
AT(nexar_shm_result, has_detail, 36);
AT(nexar_shm_result, group_epoch, 40);
AT(nexar_shm_result, stage, 44);
AT(nexar_shm_result, sequence, 48);
AT(nexar_shm_result, message, 56);
SIZE(nexar_shm_result, 64);
AT(nexar_shm_slot, state, 0);
AT(nexar_shm_slot, waiters, 4);
AT(nexar_shm_slot, generation, 8);
AT(nexar_shm_slot, stage_filled, 12);
AT(nexar_shm_slot, stage_taken, 16);
AT(nexar_shm_slot, descriptor, 64);
AT(nexar_shm_slot, result, 192);
SIZE(nexar_shm_slot, 256);
AT(nexar_shm_group_open, size, 0);
AT(nexar_shm_group_open, rank, 4);
AT(nexar_shm_group_open, name_bytes, 8);
AT(nexar_shm_group_open, secret_bytes, 12);
AT(nexar_shm_group_open, timeout_ns, 16);
AT(nexar_shm_group_open, collective_timeout_ns, 24);
AT(nexar_shm_group_open, barrier_timeout_ns, 32);
AT(nexar_shm_group_open, rpc_timeout_ns, 40);
AT(nexar_shm_group_open, instance, 48);
AT(nexar_shm_group_open, name, 56);
AT(nexar_shm_group_open, secret, 184);
SIZE(nexar_shm_group_open, 312);
AT(nexar_shm_payload, group_open, 0);
SIZE(nexar_shm_payload, 512);
AT(nexar_shm_detail, code, 0);
AT(nexar_shm_detail, text_bytes, 4);
AT(nexar_shm_detail, rank, 8);
AT(nexar_shm_detail, other_rank, 16);
AT(nexar_shm_detail, has_node, 24);
AT(nexar_shm_detail, pid, 28);
AT(nexar_shm_detail, system_errno, 32);
AT(nexar_shm_detail, lost_count, 36);
AT(nexar_shm_detail, node, 40);
AT(nexar_shm_detail, lost_ranks, 72);
AT(nexar_shm_detail, op, 200);
AT(nexar_shm_detail, host, 224);
AT(nexar_shm_detail, text, 480);
SIZE(nexar_shm_detail, 1024);
AT(nexar_shm_header, magic, 0);
AT(nexar_shm_header, version, 8);
AT(nexar_shm_header, slots, 12);
AT(nexar_shm_header, bytes, 16);
AT(nexar_shm_header, submit_tail, 64);
AT(nexar_shm_header, submit_head, 128);
AT(nexar_shm_header, completion_tail, 192);
AT(nexar_shm_header, completion_waiters, 256);
AT(nexar_shm_header, bell_wanted, 260);
AT(nexar_shm_header, bytes_copied, 264);
AT(nexar_shm_header, waits_slept, 272);
AT(nexar_shm_header, closed_code, 320);
SIZE(nexar_shm_header, 4096);
AT(nexar_shm_daemon_page, magic, 0);
AT(nexar_shm_daemon_page, version, 8);
AT(nexar_shm_daemon_page, pid, 12);
AT(nexar_shm_daemon_page, tick_ns, 64);
AT(nexar_shm_daemon_page, sleeping, 128);
AT(nexar_shm_daemon_page, busy_sessions, 192);
SIZE(nexar_shm_daemon_page, 256);
AT(nexar_shm_alive_page, alive, 0);
SIZE(nexar_shm_alive_page, 64);

/* proto/local_protocol.h */
AT(nexar_msg_head, magic, 0);
AT(nexar_msg_head, type, 4);
SIZE(nexar_msg_head, 8);
AT(nexar_msg_hello, head, 0);
AT(nexar_msg_hello, version_min, 8);
AT(nexar_msg_hello, version_max, 12);
AT(nexar_msg_hello, library_version, 16);
SIZE(nexar_msg_hello, 32);
AT(nexar_msg_welcome, head, 0);
AT(nexar_msg_welcome, version, 8);
AT(nexar_msg_welcome, session, 16);
AT(nexar_msg_welcome, region_bytes_max, 24);
AT(nexar_msg_welcome, session_bytes_max, 32);
AT(nexar_msg_welcome, node, 40);
SIZE(nexar_msg_welcome, 72);
AT(nexar_msg_refused, head, 0);
AT(nexar_msg_refused, code, 8);
AT(nexar_msg_refused, text, 16);
SIZE(nexar_msg_refused, 176);
AT(nexar_msg_attach, head, 0);
AT(nexar_msg_attach, slots, 8);
AT(nexar_msg_attach, control_bytes, 16);
SIZE(nexar_msg_attach, 24);
AT(nexar_msg_region_add, head, 0);
AT(nexar_msg_region_add, slot, 8);
AT(nexar_msg_region_add, generation, 12);
AT(nexar_msg_region_add, region, 16);
AT(nexar_msg_region_add, kind, 20);
AT(nexar_msg_region_add, offset, 24);
AT(nexar_msg_region_add, bytes, 32);
SIZE(nexar_msg_region_add, 48);

int main(void) {
    return 0;
}
