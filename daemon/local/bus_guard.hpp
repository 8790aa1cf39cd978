// Survives SIGBUS in clients' memory: the handler maps zeros over the page and notes it; the session is
// closed later. Process-wide, because signal handlers are. SIGBUS elsewhere stays deadly.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.hpp"

namespace nexar::local {

class BusGuard {
  public:
    static constexpr int ranges_max = 1 << 14;

    // Installs the handler at the first call. Returns a number for unwatch, -1 when there are ranges_max
    // already.
    // `page_bytes`: of the mapping's pages, which huge pages have their own of. Only whole ones can be
    // replaced.
    static int watch(MutableBytes memory, size_t page_bytes);
    static void unwatch(int range);
    static bool faulted(int range);
    // Of the whole process, ever: cheap to compare.
    static uint64_t faults();
};

}  // namespace nexar::local
