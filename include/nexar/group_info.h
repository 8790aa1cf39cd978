/* nexar/group_info.h - what a group is, and where its ranks are. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_GROUP_INFO_H
#define NEXAR_GROUP_INFO_H

#include "handles.h"

/* ==== What a group is ==== */

NEXAR_API nexar_status nexar_group_rank(nexar_group* group, uint32_t* rank);
NEXAR_API nexar_status nexar_group_size(nexar_group* group, uint32_t* size);
/* 1 for a group as it was opened; each recovery adds 1. */
NEXAR_API nexar_status nexar_group_epoch(nexar_group* group, uint32_t* epoch);

typedef struct nexar_group_info {
    uint32_t struct_size;
    uint32_t epoch;
    uint32_t rank;
    uint32_t size;
    uint32_t nodes;         /* how many have a rank */
    uint32_t on_failure;    /* the policy: NEXAR_ON_FAILURE_... */
    uint64_t id[3];         /* of this group and of no other, ever; the same on all ranks */
    uint64_t parent_id[3];  /* of the group that it was made from; zeros: it was opened */
    int64_t collective_timeout_ms; /* in effect: as given, agreed or configured; NEXAR_TIMEOUT_NONE */
    int64_t barrier_timeout_ms;
    int64_t rpc_timeout_ms;
    char name[NEXAR_NAME_TEXT];
    char parent_name[NEXAR_NAME_TEXT]; /* "": it was opened */
    char reserved_text[6];
    /* The plan table, fixed when the group is made, and the same on all ranks: how collectives are carried out. */
    uint32_t plan_version;
    uint32_t plan_lanes;           /* segments in flight at the same time */
    uint32_t plan_chunk_bytes;
    uint32_t plan_shards;          /* that carry them: the fewest that a node has */
    uint64_t plan_segment_bytes;   /* combined, exchanged and handed out as a unit */
    uint64_t plan_small_bytes_max; /* beyond it collectives go through the shards */
    uint64_t plan_doubling_bytes_max; /* of plan_version 1 and 2: an all_reduce up to here exchanges whole buffers */
} nexar_group_info;
#define NEXAR_GROUP_INFO_INIT \
    {sizeof(nexar_group_info), 0, 0, 0, 0, 0, {0}, {0}, 0, 0, 0, {0}, {0}, {0}, 0, 0, 0, 0, 0, 0, 0}

/* What the group is. Also of a group that has failed. */
NEXAR_API nexar_status nexar_group_info_get(nexar_group* group, nexar_group_info* info);

#define NEXAR_RANK_NONE UINT32_MAX
/* out[i]: the rank in `to` of the process that has rank ranks[i] in `from`; NEXAR_RANK_NONE: it has none there. Both
 * groups are of one session, and come from one group that was opened: parent, child, children of children. `out` may be
 * `ranks`.
 *   INVALID_ARGUMENT   NULL; count > NEXAR_RANKS_MAX; a rank that `from` lacks; groups of two sessions, or that do not
 *                      come from one: nothing is written then */
NEXAR_API nexar_status nexar_group_translate(nexar_group* from, const uint32_t* ranks, uint64_t count, nexar_group* to,
                                             uint32_t* out);

typedef struct nexar_group_member {
    uint32_t struct_size;
    uint32_t rank;
    uint32_t pid;           /* of its process, as its host has it */
    uint32_t local_rank;    /* among the group's ranks on its node, in rank order */
    uint32_t local_size;    /* how many these are */
    uint32_t reserved;
    char node[NEXAR_NODE_TEXT]; /* 64 hex digits */
    char host[NEXAR_HOST_TEXT]; /* "": not known */
    char reserved_text[7];
} nexar_group_member;
#define NEXAR_GROUP_MEMBER_INIT {sizeof(nexar_group_member), 0, 0, 0, 0, 0, {0}, {0}, {0}}

/* Where a rank is, and which process it is. Ranks of one node have the same `node`; each of them has all these answers.
 *   INVALID_ARGUMENT   NULL; a rank that the group lacks */
NEXAR_API nexar_status nexar_group_member_get(nexar_group* group, uint32_t rank, nexar_group_member* member);

/* The node of a rank, 64 hex digits; size at least NEXAR_NODE_TEXT. */
NEXAR_API nexar_status nexar_group_node(nexar_group* group, uint32_t rank, char* text, uint64_t size);

#endif
