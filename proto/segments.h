/* segments.h - how an operation is cut. C11. The only such formula: library, session, engine and plan use it,
 * so that all of them agree on which window a segment is in (docs/protocol/shm.md [S12]).
 *
 * An operation of `count` elements, each with row_bytes (its element, or one element per rank where there is
 * a block per rank), is cut into segments of about segment_bytes; segment i takes elements [begin(i), begin(i
 * + 1)) of every block. */
#ifndef NEXAR_SEGMENTS_H
#define NEXAR_SEGMENTS_H

#include <stdint.h>

#define NEXAR_SHM_SEGMENTS_MAX 65536
enum { NEXAR_SHM_STAGE_WINDOWS_MAX = 64, NEXAR_SHM_STAGE_ALIGN = 64 };

static inline uint32_t nexar_shm_segments(uint64_t count, uint64_t row_bytes, uint64_t segment_bytes) {
    const uint64_t bytes = count * row_bytes;
    uint64_t wanted = bytes / segment_bytes + (bytes % segment_bytes != 0);
    if (wanted > count) wanted = count;
    if (wanted < 1) wanted = 1;
    if (wanted > NEXAR_SHM_SEGMENTS_MAX) wanted = NEXAR_SHM_SEGMENTS_MAX;
    return wanted & UINT32_C(0xffffffff); /* as a cast, which C and C++ write differently */
}
/* Sizes differ by at most one element, the longer ones first. index may be `segments`: the end. */
static inline uint64_t nexar_shm_segment_begin(uint64_t count, uint32_t segments, uint32_t index) {
    const uint64_t longer = count % segments;
    return count / segments * index + (index < longer ? index : longer);
}
/* From one window to the next: the longest segment of `blocks` blocks. */
static inline uint64_t nexar_shm_window_bytes(uint64_t count, uint32_t segments, uint64_t element_bytes,
                                              uint64_t blocks) {
    const uint64_t bytes = (count / segments + (count % segments != 0)) * element_bytes * blocks;
    return (bytes + NEXAR_SHM_STAGE_ALIGN - 1) / NEXAR_SHM_STAGE_ALIGN * NEXAR_SHM_STAGE_ALIGN;
}

#endif
