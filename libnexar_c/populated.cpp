// See populated.hpp.
#include "populated.hpp"

#include <algorithm>
#include <new>

#include "segment.hpp"

namespace nexar::c {

Populated::Populated(uint64_t bytes) {
    const size_t words = (bytes / part_bytes + 1 + 63) / 64;
    words_.reset(static_cast<Word*>(std::calloc(words, sizeof(Word))));
    if (!words_) throw std::bad_alloc();
}

Result<void> Populated::ensure(MutableBytes memory, uint64_t offset, uint64_t bytes) {
    if (bytes == 0) return {};
    const uint64_t end = (offset + bytes - 1) / part_bytes + 1;
    for (uint64_t part = offset / part_bytes; part < end;) {
        if (has(part)) {
            ++part;
            continue;
        }
        uint64_t stop = part + 1;
        while (stop < end && !has(stop)) ++stop;
        const uint64_t from = part * part_bytes, to = std::min<uint64_t>(stop * part_bytes, memory.size());
        NEXAR_TRY_VOID(populate(memory.subspan(from, to - from)));
        for (; part < stop; ++part) set(part);
    }
    return {};
}

}  // namespace nexar::c
