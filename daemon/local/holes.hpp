// Holes: pages that a client's memfd does not have, because nobody has touched them, or the client punched
// them out. A touch by the daemon would make the kernel provide the page on the daemon's account. In memory
// that is refused() it raises SIGBUS instead, which BusGuard handles, and system calls get EFAULT [S18].
//
// Thread: any.
#pragma once

#include "core/bytes.hpp"
#include "core/result.hpp"
#include "loop/fd.hpp"

namespace nexar::local {

class Holes {
  public:
    // An error says which part of it the kernel, or a sandbox, does not allow (userfaultfd(2)).
    static Result<Holes> open();

    // Requires: `mapping` is a shared mapping of a memfd, whole pages. It stays so until it is unmapped, and
    // while this object exists. Pages that the memfd has are mapped as always, also those that come later.
    Result<void> refuse(MutableBytes mapping) const;

  private:
    explicit Holes(loop::Fd fd) : fd_(std::move(fd)) {}
    loop::Fd fd_;
};

}  // namespace nexar::local
