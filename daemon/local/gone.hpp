// Gone: shows when a file that has no name is gone: when nobody has it any more, neither as a descriptor
// (also one that is only a path), nor mapped, nor in a message that was not read. Then the kernel reports its
// deletion (inotify(7), IN_DELETE_SELF).
//
// Thread: any.
#pragma once

#include <atomic>
#include <istream>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "core/result.hpp"
#include "loop/fd.hpp"

namespace nexar::local {

// The numbers of the files that are watched still, from /proc/pid/fdinfo. None: it could not be read whole,
// so what it lacks may be watched.
std::optional<std::set<int>> watched_in(std::istream& fdinfo);

class Gone {
  public:
    using Held = std::shared_ptr<const void>;

    Gone();
    // Its number. An error: the system has no inotify, or no /proc, or too many files are watched.
    Result<int> watch(int file);
    // Holds something until it is gone. Requires: the caller has the file still.
    void keep(int number, Held held);
    // Releases what was held for files that are gone by now.
    void look();
    bool empty() const;

  private:
    std::vector<Held> take_gone();
    void add_unwatched(std::vector<int>& gone);

    const loop::Fd events_;  // of inotify; empty: the system had none
    mutable std::mutex mutex_;
    std::map<int, Held> held_;
    std::atomic<bool> overflown_{false};  // events were lost since all were looked at
};

}  // namespace nexar::local
