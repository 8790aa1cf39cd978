/* Of fake_nexar.c: what groups and their members are. */
#include <stdio.h>
#include <stdlib.h>

#include "fake_nexar.h"

nexar_status nexar_group_info_get(nexar_group* g, nexar_group_info* info) {
    if (!g || info->struct_size != sizeof *info) abort();
    *info = (nexar_group_info)NEXAR_GROUP_INFO_INIT;
    info->epoch = 1, info->rank = RANK, info->size = SIZE, info->nodes = 2;
    info->id[0] = 5, info->id[2] = 7;
    info->collective_timeout_ms = 1500, info->barrier_timeout_ms = NEXAR_TIMEOUT_NONE;
    info->plan_version = 2, info->plan_lanes = 3, info->plan_chunk_bytes = 65536, info->plan_shards = 4;
    info->plan_segment_bytes = 1 << 22, info->plan_small_bytes_max = 5, info->plan_doubling_bytes_max = 6;
    snprintf(info->name, sizeof info->name, "train/1.2");
    if (g == (nexar_group*)&group_objects[0]) return NEXAR_OK;
    info->parent_id[1] = 9;
    snprintf(info->parent_name, sizeof info->parent_name, "train");
    return NEXAR_OK;
}
nexar_status nexar_group_member_get(nexar_group* g, uint32_t rank, nexar_group_member* member) {
    if (!g || member->struct_size != sizeof *member) abort();
    if (rank > 4) return fail(NEXAR_ERR_INVALID_ARGUMENT, "group_member", -1, "no such rank");
    *member = (nexar_group_member){sizeof *member, rank, 1000 + rank, rank / 2, 3, 0, "abcd", "host", ""};
    return NEXAR_OK;
}
nexar_status nexar_group_translate(nexar_group* from, const uint32_t* ranks, uint64_t count, nexar_group* to,
                                   uint32_t* out) {
    if (!from || !to) abort();
    if (count > 4) return fail(NEXAR_ERR_INVALID_ARGUMENT, "group_translate", -1, "too many");
    for (uint64_t i = 0; i < count; ++i) out[i] = ranks[i] == 0 ? NEXAR_RANK_NONE : ranks[i] * 10;
    return NEXAR_OK;
}
nexar_status nexar_shard(uint64_t count, uint32_t size, uint32_t rank, uint64_t* offset, uint64_t* length) {
    if (rank >= size) return fail(NEXAR_ERR_INVALID_ARGUMENT, "shard", -1, "no such rank");
    *offset = count + rank, *length = size;
    return NEXAR_OK;
}
