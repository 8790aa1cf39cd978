// AwaitedTogether: which ends of a shard's transfers somebody waits for. Of a batch that is awaited together
// only the last end is worth waking the control loop: a ring's operation of 1 MiB has four ends, and each
// wake-up takes the processor from the shard where both have one (docs/protocol/transfers.md [T7]). Dry.
//
// Thread: the shard's.
#pragma once

#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <utility>

#include "core/recycled.hpp"
#include "link/mesh.hpp"

namespace nexar::shards {

class AwaitedTogether {
  public:
    // Requires: handles are never reused, and each transfer ends once.
    void post(const link::Batch& batch) {
        const uint64_t count = batch.recvs.size() + batch.sends.size();
        if (batch.awaited_together && count > 1) batches_[batch.first_handle] = {count, count};
    }
    // The transfer has ended. True: somebody waits for that; false: only together with others of its batch.
    bool ended(uint64_t handle) {
        const auto after = batches_.upper_bound(handle);
        if (after == batches_.begin()) return true;
        const auto batch = std::prev(after);
        if (handle - batch->first >= batch->second.count) return true;
        if (--batch->second.left > 0) return false;
        batches_.erase(batch);
        return true;
    }
    // Whether somebody waits for this event by itself. A failure ends the whole operation.
    bool is_awaited(const link::MeshEvent& event) {
        using Kind = link::MeshEvent::Kind;
        if (event.kind != Kind::done && event.kind != Kind::failed) return true;
        const bool is_last = ended(event.handle);
        return is_last || event.kind == Kind::failed;
    }
    bool empty() const { return batches_.empty(); }

  private:
    struct Ends {
        uint64_t count, left;
    };
    // By their first handle, those that have not ended.
    std::map<uint64_t, Ends, std::less<>, Recycled<std::pair<const uint64_t, Ends>>> batches_;
};

}  // namespace nexar::shards
