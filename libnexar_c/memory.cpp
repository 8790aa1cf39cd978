#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>

namespace nexar::c {

namespace {
constexpr auto by_base = [](const void* address, const std::unique_ptr<Region>& region) {
    return static_cast<const std::byte*>(address) < region->base;
};
}  // namespace

Regions::~Regions() {
    for (auto& region : by_address_)
        if (region->mapped_here) ::munmap(region->base, region->bytes);
}

Region* Regions::find_and_use(const void* data, uint64_t bytes) {
    std::shared_lock lock(mutex_);
    auto after = std::upper_bound(by_address_.begin(), by_address_.end(), data, by_base);
    if (after == by_address_.begin()) return nullptr;
    Region& region = **std::prev(after);
    const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(data) - region.base);
    if (region.scratch || offset > region.bytes || bytes > region.bytes - offset) return nullptr;
    region.users.fetch_add(1, std::memory_order_relaxed);
    return &region;
}

uint32_t Regions::take_id() {
    std::lock_guard lock(mutex_);
    if (!free_ids_.empty()) {
        const uint32_t id = free_ids_.back();
        free_ids_.pop_back();
        return id;
    }
    return next_id_ <= NEXAR_SHM_REGIONS_MAX ? next_id_++ : 0;
}

void Regions::give_back_id(uint32_t id) {
    std::lock_guard lock(mutex_);
    free_ids_.push_back(id);
}

Result<Region*> Regions::insert(std::unique_ptr<Region> region) {
    std::lock_guard lock(mutex_);
    auto at = std::upper_bound(by_address_.begin(), by_address_.end(), region->base, by_base);
    const bool hits_next = at != by_address_.end() && (*at)->base < region->base + region->bytes;
    const bool hits_previous =
        at != by_address_.begin() && (*std::prev(at))->base + (*std::prev(at))->bytes > region->base;
    if (hits_next || hits_previous)
        return fail(Errc::invalid_argument, "part of this memory is registered already");
    return by_address_.insert(at, std::move(region))->get();
}

Result<std::unique_ptr<Region>> Regions::take_out(const void* base, bool mapped_here) {
    std::lock_guard lock(mutex_);
    auto after = std::upper_bound(by_address_.begin(), by_address_.end(), base, by_base);
    if (after == by_address_.begin()) return fail(Errc::not_found, "no memory of this session starts there");
    auto at = std::prev(after);
    if ((*at)->base != base || (*at)->mapped_here != mapped_here)
        return fail(Errc::not_found, "no such memory of this session starts there");
    if ((*at)->users.load(std::memory_order_acquire) != 0)
        return fail(Errc::bad_state, "a pending request uses this memory");
    auto out = std::move(*at);
    by_address_.erase(at);
    return out;
}

size_t Regions::count() const {
    std::shared_lock lock(mutex_);
    return by_address_.size();
}

Result<ScratchBlock> Scratch::take(uint64_t bytes) {
    Lock lock(mutex_);
    const auto shift = static_cast<unsigned>(std::bit_width(std::max<uint64_t>(bytes, 1) - 1));
    return shift < arena_shift ? take_small(std::max(shift, smallest_shift), lock) : take_large(bytes, lock);
}

Result<ScratchBlock> Scratch::take_small(unsigned shift, Lock& lock) {
    const uint64_t bytes = uint64_t{1} << shift;
    if (free_small_[shift].empty() && arena_.bytes < bytes) {
        NEXAR_TRY(Region * region, grow(arena_bytes, lock));
        arenas_.emplace(region, 0);
        arena_ = {region, 0, arena_bytes};  // what is left of the old one waits until all of it is idle
    }
    ScratchBlock block{arena_.region, arena_.offset, bytes};
    if (!free_small_[shift].empty()) {
        block = free_small_[shift].back();
        free_small_[shift].pop_back();
    } else {
        arena_.offset += bytes;
        arena_.bytes -= bytes;
    }
    ++arenas_.at(block.region);
    return block;
}

Result<ScratchBlock> Scratch::take_large(uint64_t bytes, Lock& lock) {
    auto best = free_large_.end();
    for (auto at = free_large_.begin(); at != free_large_.end(); ++at) {
        const bool suits = at->bytes >= bytes && at->bytes / 2 <= bytes;
        if (suits && (best == free_large_.end() || at->bytes < best->bytes)) best = at;
    }
    if (best != free_large_.end()) {
        const ScratchBlock block = *best;
        free_large_.erase(best);
        return block;
    }
    const uint64_t rounded = bytes > limit_ ? bytes : (bytes + arena_bytes - 1) / arena_bytes * arena_bytes;
    NEXAR_TRY(Region * region, grow(rounded, lock));
    return ScratchBlock{region, 0, rounded};
}

// What could be given up at once.
uint64_t Scratch::idle() const {
    uint64_t bytes = 0;
    for (const ScratchBlock& block : free_large_) bytes += block.bytes;
    for (const auto& [region, in_use] : arenas_)
        if (in_use == 0) bytes += region->bytes;
    return bytes;
}

Region* Scratch::take_idle() {
    if (free_large_.empty()) return take_idle_arena();
    Region* region = free_large_.back().region;
    free_large_.pop_back();
    return region;
}

Region* Scratch::take_idle_arena() {
    const auto at = std::ranges::find_if(arenas_, [](const auto& arena) { return arena.second == 0; });
    Region* region = at->first;
    for (auto& blocks : free_small_)
        std::erase_if(blocks, [&](const ScratchBlock& block) { return block.region == region; });
    if (arena_.region == region) arena_ = {};
    arenas_.erase(at);
    return region;
}

bool Scratch::may_fit(uint64_t bytes) {
    Lock lock(mutex_);
    return fits(bytes, idle());
}

Result<Region*> Scratch::grow(uint64_t bytes, Lock& lock) {
    // Idle blocks make room; but not for what does not fit without them either.
    while (!fits(bytes, 0) && fits(bytes, idle())) {
        Region* region = take_idle();
        held_.fetch_sub(region->bytes, std::memory_order_relaxed);
        lock.unlock();
        destroy_(region);
        lock.lock();
    }
    if (!fits(bytes, 0))
        return fail(Errc::no_memory, "copies of ordinary memory would take " + std::to_string(held()) +
                                         " + " + std::to_string(bytes) + " bytes; scratch_limit is " +
                                         std::to_string(limit_) + ": use memory from nexar_alloc");
    held_.fetch_add(bytes, std::memory_order_relaxed);
    lock.unlock();
    auto region = create_(bytes);
    lock.lock();
    if (!region) held_.fetch_sub(bytes, std::memory_order_relaxed);
    return region;
}

Result<ScratchBlock> Scratch::take_own(uint64_t bytes) {
    tidy_up();
    bytes = (bytes + page_bytes - 1) & ~(uint64_t{page_bytes} - 1);
    NEXAR_TRY(Region * region, create_(bytes));
    own_.fetch_add(bytes, std::memory_order_relaxed);
    return ScratchBlock{region, 0, bytes, true};
}

void Scratch::tidy_up() {
    std::vector<ScratchBlock> idle;
    {
        std::lock_guard lock(mutex_);
        idle.swap(idle_own_);
    }
    for (const ScratchBlock& block : idle) destroy_(block.region);
}

void Scratch::give_back(const ScratchBlock& block) {
    if (block.own) {
        own_.fetch_sub(block.bytes, std::memory_order_relaxed);
        // Pages of shared memory go at once, for the daemon's mapping too; refused, they go in tidy_up().
        static_cast<void>(::madvise(block.data(), block.bytes, MADV_REMOVE));
    }
    std::lock_guard lock(mutex_);
    if (block.own) {
        idle_own_.push_back(block);
    } else if (block.bytes < arena_bytes) {
        free_small_[static_cast<unsigned>(std::bit_width(block.bytes)) - 1].push_back(block);
        --arenas_.at(block.region);
    } else {
        free_large_.push_back(block);
    }
}

}  // namespace nexar::c
