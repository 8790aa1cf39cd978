// Memory that the daemon can reach: regions by address, and scratch for operations on ordinary memory.
// Any thread. Looking a pointer up is a shared lock and a binary search.
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

namespace nexar::c {

struct Region {
    std::byte* base = nullptr;
    uint64_t bytes = 0;
    uint32_t id = 0;
    bool mapped_here = false;  // by nexar_alloc or for scratch: we unmap
    bool scratch = false;
    std::atomic<bool> ready{false};  // the daemon has it: operations may use it
    std::atomic<uint32_t> users{0};  // requests that are not ended
};

class Regions {
  public:
    ~Regions();
    // The region that holds [data, data + bytes), used until `users` is lowered; or null. Where only its
    // start is in a region: invalid_argument.
    Result<Region*> find_and_use(const void* data, uint64_t bytes);

    // 0: too many at once, until give_back_id. No number comes twice: a descriptor that names a region that
    // is gone never means another one.
    uint32_t take_id();
    void give_back_id();
    // Reserves its addresses, before the daemon is asked; it is not ready. Overlapping another:
    // invalid_argument.
    Result<Region*> insert(std::unique_ptr<Region> region);
    bool overlaps(const std::byte* base, uint64_t bytes) const;
    // The region that starts at `base`, if nobody uses it: not ready any more. Then erase(), or `ready`
    // again.
    Result<Region*> begin_removal(const void* base, bool mapped_here);
    void erase(const Region* region);
    size_t count() const;

  private:
    bool hits(const std::byte* base, uint64_t bytes) const;

    mutable std::shared_mutex mutex_;
    std::vector<std::unique_ptr<Region>> by_address_;
    uint32_t ids_ = 0, last_id_ = 0;
};

// Small blocks are powers of two, cut from shared regions (arenas); large ones have a region of their own.
struct ScratchBlock {
    Region* region = nullptr;
    uint64_t offset = 0;
    uint64_t bytes = 0;  // of the block: what is counted against the limit
    bool own = false;    // beyond the limit: its pages go when its request has ended
    std::byte* data() const { return region->base + offset; }
    explicit operator bool() const { return region != nullptr; }
};

class Scratch {
  public:
    // Makes and registers a region of at least so many bytes (and destroys one): an exchange with the daemon.
    using Create = std::function<Result<Region*>(uint64_t bytes)>;
    using Destroy = std::function<void(Region*)>;
    Scratch(uint64_t limit, Create create, Destroy destroy)
        : limit_(limit),
          arena_bytes_(arena_size(limit)),
          create_(std::move(create)),
          destroy_(std::move(destroy)) {}

    Result<ScratchBlock> take(uint64_t bytes);
    // Whatever the limit is: for a message, which cannot be staged.
    Result<ScratchBlock> take_own(uint64_t bytes);
    // No exchange with the daemon: nexar_test does not block. What is left of own blocks goes in tidy_up().
    void give_back(const ScratchBlock& block);
    // Called before regions are made: addresses and region numbers of own blocks that nobody uses.
    void tidy_up();
    // Whether take() would find room, also for several blocks of together so many bytes. A guess: others
    // take, too.
    bool may_fit(uint64_t bytes);
    uint64_t held() const {
        return held_.load(std::memory_order_relaxed) + own_.load(std::memory_order_relaxed);
    }

  private:
    static constexpr unsigned smallest_shift = 12, arena_shift_max = 20;  // 4 KiB, 1 MiB
    using Lock = std::unique_lock<std::mutex>;
    // So that the parts of arenas that nobody uses are a small part of the limit.
    static uint64_t arena_size(uint64_t limit);
    Result<ScratchBlock> take_small(unsigned shift, Lock& lock);
    ScratchBlock take_larger(unsigned shift);
    Result<ScratchBlock> take_large(uint64_t bytes, Lock& lock);
    // Lets go of the lock while it speaks with the daemon: requests lock themselves, and then us.
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
    std::array<std::vector<ScratchBlock>, arena_shift_max> free_small_;  // by the power of two
    std::vector<ScratchBlock> free_large_;
    std::vector<ScratchBlock> idle_own_;
    ScratchBlock arena_;                  // the rest of the newest shared region
    std::map<Region*, uint32_t> arenas_;  // the shared regions, and how many of their blocks are in use
    std::atomic<uint64_t> held_{0};       // counted against the limit
    std::atomic<uint64_t> own_{0};
};

}  // namespace nexar::c
