// BusGuard: keeps the daemon running when the kernel has no page for a client's memory (a punched hole while
// huge pages are exhausted). On SIGBUS in a watched range the handler maps zeros over the page and marks the
// range; the session is closed later. SIGBUS elsewhere still ends the process. Process-wide, because signal
// handlers are.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.hpp"

namespace nexar::local {

class BusGuard {
  public:
    static constexpr int ranges_max = 1 << 16;  // above what tenants may map [N1], and the sessions' segments

    // Installs the handler at the first call. Returns a number for unwatch(), or -1 when ranges_max are
    // watched. `page_size`: the size of the mapping's pages (huge pages differ); the handler replaces whole
    // pages.
    static int watch(MutableBytes memory, size_t page_size);
    static void unwatch(int range);
    static bool faulted(int range);
    // Faults of the whole process since its start; a change means that some range has faulted.
    static uint64_t faults();
};

}  // namespace nexar::local
