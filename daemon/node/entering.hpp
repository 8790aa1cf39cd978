// Entering: the way of a node into a cluster over the disk: its files are saved in one batch, and removed
// again if that fails or if the member cannot start [K7].
//
// Thread: the control loop's.
#pragma once

#include <optional>

#include "storage/port.hpp"

namespace nexar::node {

class Entering {
  public:
    // `undo` is saved after a failure; empty for a restart, which keeps its files.
    Entering(storage::Port& port, storage::Batch files, storage::Batch undo);

    // none: the disk is at work. A success may be followed by give_up(); an error is final, and the files are
    // gone again (if not, its text says so).
    std::optional<Result<void>> poll();
    void give_up(Error why);
    // The batch that is being saved: only a daemon's start waits for it.
    const storage::Saving& saving() const { return saving_; }

  private:
    storage::Port* port_;
    storage::Batch undo_;
    storage::Saving saving_;  // of the files; after a failure, of their removal
    std::optional<Error> failure_;
};

}  // namespace nexar::node
