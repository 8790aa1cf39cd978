/* Every offset that two processes, or a program and a library of different age, must agree on. A line is
 * never changed, only added: a changed one is a broken ABI. Compiled, never run. */
#include <nexar.h>
#include <stddef.h>

#include "local_protocol.h"
#include "shm_layout.h"

#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field)
#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type)

/* include/nexar.h: sizes may grow at the end, offsets may not change. */
AT(nexar_error, struct_size, 0);
AT(nexar_error, code, 4);
AT(nexar_error, error_class, 8);
AT(nexar_error, rank, 16);
AT(nexar_error, other_rank, 24);
AT(nexar_error, node, 32);
AT(nexar_error, op, 97);
AT(nexar_error, text, 121);
SIZE(nexar_error, 384);
AT(nexar_session_options, struct_size, 0);
AT(nexar_session_options, slots, 4);
AT(nexar_session_options, socket_path, 8);
AT(nexar_session_options, connect_timeout_ms, 16);
AT(nexar_session_options, daemon_unresponsive_ms, 24);
AT(nexar_session_options, scratch_limit, 32);
AT(nexar_session_options, spin_us, 40);
SIZE(nexar_session_options, 48);
AT(nexar_session_stats, operations, 8);
AT(nexar_session_stats, waits_slept, 72);
SIZE(nexar_session_stats, 80);
AT(nexar_group_options, size, 4);
AT(nexar_group_options, rank, 8);
AT(nexar_group_options, name, 16);
AT(nexar_group_options, job_secret, 24);
AT(nexar_group_options, timeout_ms, 32);
AT(nexar_group_options, collective_timeout_ms, 40);
SIZE(nexar_group_options, 48);
AT(nexar_completion, status, 4);
AT(nexar_completion, bytes, 8);
AT(nexar_completion, tag, 16);
AT(nexar_completion, source, 24);
SIZE(nexar_completion, 32);
SIZE(nexar_request, 8);
SIZE(nexar_status, 4);

/* proto/shm_layout.h: exactly. */
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
AT(nexar_shm_slot, state, 0);
AT(nexar_shm_slot, waiters, 4);
AT(nexar_shm_slot, generation, 8);
AT(nexar_shm_slot, descriptor, 64);
AT(nexar_shm_slot, result, 192);
AT(nexar_shm_descriptor, kind, 0);
AT(nexar_shm_descriptor, dtype, 1);
AT(nexar_shm_descriptor, op, 2);
AT(nexar_shm_descriptor, flags, 3);
AT(nexar_shm_descriptor, group, 4);
AT(nexar_shm_descriptor, count, 8);
AT(nexar_shm_descriptor, peer, 16);
AT(nexar_shm_descriptor, tag, 24);
AT(nexar_shm_descriptor, timeout_ns, 32);
AT(nexar_shm_descriptor, in, 40);
AT(nexar_shm_descriptor, out, 56);
AT(nexar_shm_extent, region, 0);
AT(nexar_shm_extent, offset, 8);
AT(nexar_shm_result, status, 0);
AT(nexar_shm_result, source, 4);
AT(nexar_shm_result, bytes, 8);
AT(nexar_shm_result, tag, 16);
AT(nexar_shm_result, group, 24);
AT(nexar_shm_result, rank, 28);
AT(nexar_shm_result, size, 32);
AT(nexar_shm_result, has_detail, 36);
AT(nexar_shm_result, group_epoch, 40);
AT(nexar_shm_result, sequence, 48);
AT(nexar_shm_result, plan_hash, 56);
AT(nexar_shm_group_open, size, 0);
AT(nexar_shm_group_open, rank, 4);
AT(nexar_shm_group_open, name_bytes, 8);
AT(nexar_shm_group_open, secret_bytes, 12);
AT(nexar_shm_group_open, timeout_ns, 16);
AT(nexar_shm_group_open, name, 24);
AT(nexar_shm_group_open, secret, 152);
AT(nexar_shm_detail, code, 0);
AT(nexar_shm_detail, text_bytes, 4);
AT(nexar_shm_detail, rank, 8);
AT(nexar_shm_detail, other_rank, 16);
AT(nexar_shm_detail, has_node, 24);
AT(nexar_shm_detail, node, 32);
AT(nexar_shm_detail, op, 64);
AT(nexar_shm_detail, text, 88);
AT(nexar_shm_daemon_page, tick_ns, 64);
AT(nexar_shm_daemon_page, sleeping, 128);
AT(nexar_shm_daemon_page, busy_sessions, 192);
AT(nexar_shm_alive_page, alive, 0);

/* proto/local_protocol.h: exactly. */
AT(nexar_msg_hello, version_min, 8);
AT(nexar_msg_hello, version_max, 12);
AT(nexar_msg_hello, library_version, 16);
AT(nexar_msg_welcome, version, 8);
AT(nexar_msg_welcome, session, 16);
AT(nexar_msg_welcome, region_bytes_max, 24);
AT(nexar_msg_welcome, session_bytes_max, 32);
AT(nexar_msg_welcome, node, 40);
AT(nexar_msg_refused, code, 8);
AT(nexar_msg_refused, text, 16);
AT(nexar_msg_attach, slots, 8);
AT(nexar_msg_attach, control_bytes, 16);
AT(nexar_msg_region_add, slot, 8);
AT(nexar_msg_region_add, generation, 12);
AT(nexar_msg_region_add, region, 16);
AT(nexar_msg_region_add, offset, 24);
AT(nexar_msg_region_add, bytes, 32);

int main(void) {
    return 0;
}
