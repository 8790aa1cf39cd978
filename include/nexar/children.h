/* nexar/children.h - groups made from a group. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_CHILDREN_H
#define NEXAR_CHILDREN_H

#include "handles.h"

/* ==== Children: groups of ranks of a group ====
 * A child is a group like any other: own handle, epoch, order of collectives, time-outs and failures. It outlives its
 * parent, which may be freed first; its members free it like any group. It has children of its own, too. Its name, for
 * people, is the parent's, the number of the collective that made it, and its colour: "train/7.2".
 *
 * nexar_group_split and nexar_group_dup are collectives of the parent: every rank of it calls the same one, in the
 * parent's order of collectives; if not, all get MISMATCH. When the call has succeeded, every member can use the child
 * at once. A call that fails makes no child: if it had succeeded on other members of the child before it failed on one,
 * the child ends there at once, PEER_LOST or LINK_LOST with that member's error as its text.
 *   TABLE_FULL       a member's session, user or daemon has as many groups as it may have: every rank gets the error,
 *                    which names that rank; free some groups. (Only on the rank itself: it has too many requests)
 *   OPTIONS_DIFFER   two members of one child give different values of one of the time-outs below: on all ranks
 *   and those of collectives (collectives.h) */

#define NEXAR_COLOUR_UNDEFINED UINT32_MAX

typedef struct nexar_child_options {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t timeout_ms;    /* of the call; default: the parent's for collectives */
    uint64_t match_id;     /* as in nexar_op_options */
    /* Of the child's operations; default: the other members' value, or else the parent's. 0 is refused. */
    int64_t collective_timeout_ms;
    int64_t barrier_timeout_ms;    /* default, where a member sets collective_timeout_ms: as that */
    int64_t rpc_timeout_ms;
    uint64_t user_data;    /* of _start: repeated in the completion */
} nexar_child_options;
#define NEXAR_CHILD_OPTIONS_INIT \
    {sizeof(nexar_child_options), 0, NEXAR_TIMEOUT_DEFAULT, 0, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, \
     NEXAR_TIMEOUT_DEFAULT, 0}
NEXAR_API void nexar_child_options_init(nexar_child_options* options, uint64_t size);

/* A child for each colour, of the ranks that give it. Its ranks are in the order of their keys, equal keys in the order
 * of the parent. NEXAR_COLOUR_UNDEFINED: this rank gets no child, and *child is NULL. options may be NULL; it does not
 * have to be the same on all ranks.
 *   BAD_STATE   another thread is inside a collective of the parent */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_split(nexar_group* parent, uint32_t colour, int64_t key,
                                                          nexar_group** child, const nexar_child_options* options);
/* The completion's `group` is the child, NULL without a colour. Freeing a request whose completion no call has returned
 * frees the child too. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_split_start(nexar_group* parent, uint32_t colour, int64_t key,
                                                                const nexar_child_options* options,
                                                                nexar_request* request);

/* A child with the same ranks: for a library, or a thread, that needs an order of collectives of its own. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_dup(nexar_group* parent, nexar_group** child,
                                                        const nexar_child_options* options);
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_dup_start(nexar_group* parent, const nexar_child_options* options,
                                                              nexar_request* request);

typedef struct nexar_create_options {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t tag;          /* creates of one list that run at the same time each have their own */
    int64_t timeout_ms;    /* of the call; default: the parent's for collectives. 0 is refused */
    /* Of the new group's operations, the same on all its ranks; default: the parent's. 0 is refused. */
    int64_t collective_timeout_ms;
    int64_t barrier_timeout_ms;    /* default, where collective_timeout_ms is given: as that */
    int64_t rpc_timeout_ms;
    uint64_t user_data;    /* of _start: repeated in the completion */
} nexar_create_options;
#define NEXAR_CREATE_OPTIONS_INIT \
    {sizeof(nexar_create_options), 0, 0, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, NEXAR_TIMEOUT_DEFAULT, \
     NEXAR_TIMEOUT_DEFAULT, 0}
NEXAR_API void nexar_create_options_init(nexar_create_options* options, uint64_t size);

/* A child of listed ranks of the parent, in the order of the list; its name is "train/t0", with the tag. Only the
 * listed ranks call, each with the same list; all others go on, and may be asleep or in a collective. It is no
 * collective of the parent, and has no place in its order: any thread may call. The calls with the same parent, list
 * and tag belong together; one after the other they make one group each. The parent may be freed as soon as the call
 * has succeeded here.
 *   INVALID_ARGUMENT   NULL; a rank that the parent lacks, or that is in the list twice; this rank is not in the list
 *   BAD_STATE          this rank is in a create with this tag already
 *   MISMATCH           this rank and another one wait with lists that differ, with each other in them, and the same
 *                      tag: both calls get the error, which names both, about a second after the later one. No call
 *                      gets it because of one that had ended before
 *   GROUP_INCOMPLETE   the timeout passed; the error names a listed rank that did not call, and says who did, in the
 *                      parent's rank numbers, and in which other create it waited, where that is known. This ends the
 *                      call of this rank; the others wait on, and it may call again. Such a call can complete another
 *                      rank's first one: a program that does not know what the others have got uses a new tag
 *   CANCELLED, INTERRUPTED   likewise
 *   ABORTED, PEER_LOST, LINK_LOST   a listed rank has left the parent, or the parent ended, while this rank waited
 *   OPTIONS_DIFFER, TABLE_FULL      as in nexar_group_open
 *   NO_MEMORY          the daemon's memory that this user may have has no room for the list */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_create(nexar_group* parent, const uint32_t* ranks, uint64_t count,
                                                           nexar_group** group, const nexar_create_options* options);
/* As the others of this section. `ranks` is read during the call only. */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_group_create_start(nexar_group* parent, const uint32_t* ranks,
                                                                 uint64_t count, const nexar_create_options* options,
                                                                 nexar_request* request);

#endif
