/* nexar/memory.h - memory that operations use in place. The rules are in nexar.h. */
/* clang-format off */
#ifndef NEXAR_MEMORY_H
#define NEXAR_MEMORY_H

#include "handles.h"

/* ==== Memory that the daemon can reach ==== */

enum {
    NEXAR_ALLOC_LAZY = 1,      /* pages are made when first touched (and may fail then), at the latest by the start of
                                  an operation on them, which then is NO_MEMORY; default: all at once */
    NEXAR_ALLOC_HUGE_PAGES = 2 /* transparent huge pages where the system gives them to shared memory, else ordinary */
};

typedef struct nexar_alloc_options {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t flags; /* NEXAR_ALLOC_... */
} nexar_alloc_options;
#define NEXAR_ALLOC_OPTIONS_INIT {sizeof(nexar_alloc_options), 0, 0}
NEXAR_API void nexar_alloc_options_init(nexar_alloc_options* options, uint64_t size);

/* Zeroed, page-aligned memory that operations use in place. bytes > 0. It counts against this process. The limits are
 * checked before the first page is touched. options may be NULL.
 *   NO_MEMORY    the system refused, or the daemon's limit for a session or a user (session_memory_max_bytes,
 *                region_bytes_max, user_share_percent in its configuration)
 *   TABLE_FULL   this session has 1024 regions: of nexar_alloc, nexar_register_memfd, and scratch; or this user has as
 *                many as the daemon allows one (regions_max, user_share_percent) */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_alloc(nexar_session* session, uint64_t bytes,
                                                    const nexar_alloc_options* options, void** out);

/* Frees memory of nexar_alloc. It counts against the user until no process maps it: a child that was forked meanwhile
 * does until it ends or calls execve() or munmap(). BAD_STATE: a request uses it that is pending, or whose end no call
 * has returned yet. NOT_FOUND: not the start of such memory. */
NEXAR_API nexar_status nexar_free(nexar_session* session, void* memory);

/* Makes memory that you mapped yourself usable in place: address is where this process mapped, shared and
 * writable, `bytes` bytes of the memfd `fd` from `offset` on; offset, and with huge pages bytes too, a multiple of
 * the memfd's page size. You keep the descriptor and the mapping. In place only where the daemon's memfds_in_place
 * says that its users trust each other; elsewhere it works as ordinary memory does, by copies. A call that fails has
 * no effect, except for seals when the daemon refuses. Pages that you have not touched are made on this process's
 * account, a few of them at once and the others by the operation that uses them first, at its start: NO_MEMORY if the
 * system lacks them.
 * In place the memfd is sealed: against other lengths, and by the daemon against new writable mappings, write(2), and
 * pages that are taken out (MADV_REMOVE, FALLOC_FL_PUNCH_HOLE; EPERM from now on), and against further seals. So
 * create it with MFD_ALLOW_SEALING, and map it in all its processes before the first registers it. It may be
 * registered again, in other parts and by other sessions of this user, while any part of it is registered (above
 * 1 GiB: what lies in that part), and not any more when the last registration has ended.
 * (The name nexar_register is kept for memory of other kinds.)
 *   UNSUPPORTED        not a memfd, or it does not allow seals; or it was registered before, and is not now
 *   TABLE_FULL         as nexar_alloc
 *   INVALID_ARGUMENT   not aligned; not a shared mapping of these bytes of this memfd; or the memory overlaps memory
 *                      that is registered already */
NEXAR_API NEXAR_MUST_CHECK nexar_status nexar_register_memfd(nexar_session* session, void* address, uint64_t bytes,
                                                             int fd, uint64_t offset);

/* The reverse; before you unmap. BAD_STATE: a pending request uses it. */
NEXAR_API nexar_status nexar_unregister(nexar_session* session, void* address);

#endif
