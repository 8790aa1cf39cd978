// BusGuard: keeps the daemon running when a client's memory lacks a page (Holes; or a punched hole while huge
// pages are exhausted). On SIGBUS in a watched range the handler maps zeros over the place and marks the
// range; the session is closed soon. SIGBUS elsewhere still ends the process. Process-wide, because signal
// handlers are.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/bytes.hpp"
#include "loop/wakeup.hpp"

namespace nexar::local {

class Faults;

class BusGuard {
  public:
    static constexpr int ranges_max = 1 << 16;  // above what tenants may map [N1], and the sessions' segments

    // Installs the handler at the first call. Returns a number for unwatch(), or -1 when ranges_max are
    // watched. `page_size`: the size of the mapping's pages (huge pages differ). The handler replaces whole
    // pages, and as far as they are watched all within 2 MiB: a client chooses where its holes are, and a
    // process has few mappings; and unmapping more at once would hold up the thread that faulted. Faults are
    // noted as the owner's in `faults`, if there is one, which outlives the watch.
    // `beyond`: so many bytes behind `memory` belong to the same mapping; they go with it where the process
    // may have no more mappings, because replacing a part would make another one.
    static int watch(MutableBytes memory, size_t beyond, size_t page_size, Faults* faults = nullptr,
                     uint64_t owner = 0);
    static void unwatch(int range);
    static bool faulted(int range);
    // Ended at each fault, so that the session ends before much of what replaces its memory is written to.
    // Null: none. Requires: outlives every fault until another one is set.
    static void wake_at_faults(loop::Wakeup* sleeper);
};

// Whose memory has faulted, so that nobody else's is looked at [S20].
// Thread: take() is the owner's; others may fault meanwhile.
class Faults {
  public:
    // The owners of ranges that have faulted since it was called last, one for each range; or the owner that
    // the range has now.
    std::vector<uint64_t> take();
    bool any() const { return any_.load(std::memory_order_relaxed); }  // take() would return some
    void note(int range);                                              // in a signal handler

  private:
    std::atomic<bool> any_{false};
    std::array<std::atomic<uint64_t>, BusGuard::ranges_max / 64> ranges_{};  // a bit for each
};

}  // namespace nexar::local
