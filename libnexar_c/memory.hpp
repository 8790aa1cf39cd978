// Regions and Scratch: memory that the daemon can reach. Regions finds a region by address (a shared lock and
// a binary search); Scratch has memory for copies of ordinary memory.
//
// Thread: any.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "connection.hpp"
#include "populated.hpp"
#include "segment.hpp"

namespace nexar::c {

struct Region {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
    uint32_t id = 0;
    bool mapped_here = false;  // by nexar_alloc or for scratch: the library unmaps it
    bool scratch = false;
    bool in_place = true;            // false: the daemon does not have it; it is copied as ordinary memory is
    std::atomic<bool> ready{false};  // the daemon has mapped it: operations may use it
    std::atomic<uint32_t> users{0};  // requests in flight that use it
    std::unique_ptr<Populated> populated;  // null: all of it has its pages
};

class Regions {
  public:
    ~Regions();
    // The region that holds [data, data + bytes), with `users` raised: the caller lowers it. Null: no region.
    // invalid_argument: only the start is in a region.
    Result<Region*> find_and_use(const void* data, uint64_t bytes);

    // 0: too many regions at the same time, until give_back_id(). A number is used once, so that a descriptor
    // with the number of a freed region never means another region.
    uint32_t take_id();
    void give_back_id();
    // Reserves its addresses, before the daemon maps it; the region is not ready. invalid_argument: it
    // overlaps another one.
    Result<Region*> insert(std::unique_ptr<Region> region);
    bool overlaps(const std::byte* base, uint64_t bytes) const;
    // The region that starts at `base`, with `ready` cleared. bad_state: a request uses it. The caller then
    // calls erase(), or sets `ready` again.
    Result<Region*> begin_removal(const void* base, bool mapped_here);
    void erase(const Region* region);
    size_t count() const;

  private:
    bool hits(const std::byte* base, uint64_t bytes) const;

    mutable std::shared_mutex mutex_;
    std::vector<std::unique_ptr<Region>> by_address_;  // ascending, without overlaps
    uint32_t ids_ = 0;                                 // ids taken and not given back
    uint32_t last_id_ = 0;                             // the highest id taken so far
};

// Small blocks are powers of two, cut from shared regions (arenas); a large block has its own region.
struct ScratchBlock {
    Region* region = nullptr;
    uint64_t offset = 0;
    uint64_t bytes = 0;  // of the block, as counted against the limit
    bool own = false;    // not counted against the limit: it is freed when its request has ended
    std::byte* data() const { return region->base + offset; }
    explicit operator bool() const { return region != nullptr; }
};

class Scratch {
  public:
    // Create maps and registers a region of at least so many bytes, Destroy undoes it; both block on the
    // daemon.
    using Create = std::function<Result<Region*>(uint64_t bytes)>;
    using Destroy = std::function<void(Region*)>;
    Scratch(uint64_t limit, Create create, Destroy destroy)
        : limit_(limit),
          arena_bytes_(arena_size(limit)),
          create_(std::move(create)),
          destroy_(std::move(destroy)) {}

    Result<ScratchBlock> take(uint64_t bytes);
    // Above the limit too: for a message, which cannot be staged.
    Result<ScratchBlock> take_own(uint64_t bytes);
    // Does not wait for the daemon, because nexar_request_test must not block.
    void give_back(const ScratchBlock& block);
    // Frees own blocks that were given back. Called in calls that may wait for the daemon.
    void tidy_up();
    // Whether take() would find room now, also for several blocks of so many bytes in all. A guess: other
    // threads take blocks too.
    bool may_fit(uint64_t bytes);
    uint64_t held() const {
        return held_.load(std::memory_order_relaxed) + own_.load(std::memory_order_relaxed);
    }

  private:
    static constexpr unsigned smallest_shift = 12, arena_shift_max = 20;  // 4 KiB, 1 MiB
    using Lock = std::unique_lock<std::mutex>;
    // A power of two, at most an eighth of the limit, so that the unused parts of arenas are small beside it.
    static uint64_t arena_size(uint64_t limit);
    Result<ScratchBlock> take_small(unsigned shift, Lock& lock);
    ScratchBlock take_larger(unsigned shift);
    Result<ScratchBlock> take_large(uint64_t bytes, Lock& lock);
    // Releases the lock while it waits for the daemon: a thread that holds a request's lock may wait for this
    // lock.
    Result<Region*> grow(uint64_t bytes, Lock& lock);
    bool fits(uint64_t bytes, uint64_t idle) const {
        return bytes <= limit_ && held_.load(std::memory_order_relaxed) - idle <= limit_ - bytes;
    }
    uint64_t idle() const;
    ScratchBlock take_idle();
    ScratchBlock take_idle_arena();

    const uint64_t limit_, arena_bytes_;
    Create create_;
    Destroy destroy_;
    std::mutex mutex_;
    std::array<std::vector<ScratchBlock>, arena_shift_max> free_small_;  // idle small blocks, by power of two
    std::vector<ScratchBlock> free_large_;                               // idle large blocks
    std::vector<ScratchBlock> idle_own_;  // own blocks given back, for tidy_up()
    std::atomic<bool> any_idle_own_{false};
    ScratchBlock arena_;                  // the rest of the newest arena
    std::map<Region*, uint32_t> arenas_;  // blocks in use, by arena
    std::atomic<uint64_t> held_{0};       // bytes counted against the limit
    std::atomic<uint64_t> own_{0};        // bytes of own blocks in use
};

}  // namespace nexar::c
