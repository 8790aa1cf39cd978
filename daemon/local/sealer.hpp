// Sealer: takes from clients the means to make the daemon wait for memory. A touch of a page waits while its
// memfd is being punched, 0.2 s per GiB. F_SEAL_FUTURE_WRITE refuses to punch. It also refuses to map the
// memfd for writing, so it comes after the daemon's mapping, and only with the client's leave: a memfd that
// is not sealed against seals [S19].
//
// Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "loop/fd.hpp"
#include "loop/releaser.hpp"

namespace nexar::local {

// True: a touch of the memory may wait for its client. Only ever changes to false. Null: it never may.
using MayWait = std::shared_ptr<const std::atomic<bool>>;

class Sealer {
  public:
    // Adds the seals on a thread, because that waits for a punch in progress. Those of one lane wait for each
    // other; of more than `waiting_max` the next ones are left as they are. A memfd is left, too, that is
    // sealed against seals, or is quickly punched: at most quick_bytes_max long, or of huge pages.
    // Requires: the daemon has mapped it.
    MayWait seal(uint64_t lane, loop::Fd memfd);

    // Of a memfd: a punch of so much takes 0.3 ms.
    static constexpr uint64_t quick_bytes_max = uint64_t{1} << 20;
    static constexpr size_t waiting_max = 256;

  private:
    static constexpr size_t threads_max = 64;  // users who punch at a time
    loop::Releaser threads_{threads_max};
};

}  // namespace nexar::local
