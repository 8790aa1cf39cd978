// Batch: an op group, the operations that one thread has started between nexar_ops_begin and nexar_ops_end.
// They are prepared, and none is submitted before the end [S24].
//
// Thread: the one that began it.
#pragma once

#include <vector>

#include "tables.hpp"
#include "turn.hpp"

namespace nexar::c {

class Batch {
  public:
    Batch();
    Batch(const Batch&) = delete;
    ~Batch();

    uint64_t thread() const { return thread_; }
    void nest() { ++depth_; }
    bool unnest() { return --depth_ == 0; }  // true: it was the outermost
    bool has_turn(const Group& group) const;
    // Until the batch ends. Requires: the turn was taken.
    void keep_turn(GroupPin group);
    void add(const Taken& taken) { all_.push_back(taken); }
    const std::vector<Taken>& all() const { return all_; }

  private:
    const uint64_t thread_;
    uint32_t depth_ = 1;
    std::vector<Taken> all_;
    std::vector<GroupPin> turns_;
};

// The turn of a call on the group: that of this thread's batch (null: it has none), or its own.
inline Turn turn_of(const Batch* batch, Group& group, uint8_t kind) {
    return batch && batch->has_turn(group) ? Turn() : Turn(group, kind);
}
// Submits the request, or adds it to the batch, which keeps the turn.
Result<void> hand_over(PinnedGroup& pinned, Batch* batch, Turn& turn, const Taken& taken);
// An error: this thread is in a batch, where nothing may wait.
Result<void> may_block(Session& session);

}  // namespace nexar::c
