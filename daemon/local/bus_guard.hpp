// BusGuard: keeps the daemon running when a client's memory lacks a page (Holes; or a punched hole while huge
// pages are exhausted). On SIGBUS in a watched range the handler maps zeros over the place and marks the
// range; the session is closed soon. SIGBUS elsewhere still ends the process. Process-wide, because signal
// handlers are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.hpp"
#include "loop/wakeup.hpp"

namespace nexar::local {

class BusGuard {
  public:
    static constexpr int ranges_max = 1 << 16;  // above what tenants may map [N1], and the sessions' segments

    // Installs the handler at the first call. Returns a number for unwatch(), or -1 when ranges_max are
    // watched. `page_size`: the size of the mapping's pages (huge pages differ). The handler replaces whole
    // pages, and as far as they are watched all within 2 MiB: a client chooses where its holes are, and a
    // process has few mappings; and unmapping more at once would hold up the thread that faulted.
    static int watch(MutableBytes memory, size_t page_size);
    static void unwatch(int range);
    static bool faulted(int range);
    // Faults of the whole process since its start; a change means that some range has faulted.
    static uint64_t faults();
    // Ended at each fault, so that the session ends before much of what replaces its memory is written to.
    // Null: none. Requires: outlives every fault until another one is set.
    static void wake_at_faults(loop::Wakeup* sleeper);
};

}  // namespace nexar::local
