// WriteQueue: the batches that wait for the writer, in order, merged and bounded ([K3] to [K5] of
// docs/protocol/storage.md). Dry: its owner carries out one batch after the other. Thread: one.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "storage/port.hpp"

namespace nexar::storage {

class WriteQueue {
  public:
    static constexpr size_t batches_max = 64;
    static constexpr size_t bytes_max = 8u << 20;  // the contents that wait
    static constexpr size_t merged_max = 1024;     // into one batch

    Saving push(Batch batch);
    // The next batch, in progress from now on; it stays here, unchanged, until end(). null: there is none, or
    // one is in progress.
    const Batch* begin();
    void end(Outcome outcome);  // of the batch in progress
    bool empty() const { return entries_.empty(); }

  private:
    struct Entry {
        Batch batch;
        std::vector<Saving> waiting;  // all that this batch settles
    };
    Entry* find_mergeable(const Batch& batch);

    std::deque<Entry> entries_;  // the first may be in progress
    size_t bytes_ = 0;           // of all contents here
    bool in_progress_ = false;
};

}  // namespace nexar::storage
