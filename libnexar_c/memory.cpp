// See memory.hpp.
#include "memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <span>

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

Result<Region*> Regions::find_and_use(const void* data, uint64_t bytes) {
    std::shared_lock lock(mutex_);
    auto after = std::upper_bound(by_address_.begin(), by_address_.end(), data, by_base);
    if (after == by_address_.begin()) return nullptr;
    Region& region = **std::prev(after);
    const auto offset = static_cast<uint64_t>(static_cast<const std::byte*>(data) - region.base);
    if (region.scratch || !region.ready.load(std::memory_order_acquire) || !region.in_place) return nullptr;
    if (offset >= region.bytes) return nullptr;
    // Most often `count` was given in bytes instead of elements; a copy would read past the region.
    if (bytes > region.bytes - offset)
        return fail(Errc::invalid_argument, "the buffer of " + std::to_string(bytes) +
                                                " bytes begins at byte " + std::to_string(offset) +
                                                " of registered memory of " + std::to_string(region.bytes) +
                                                " bytes and runs past its end (count is in elements)");
    region.users.fetch_add(1, std::memory_order_relaxed);
    return &region;
}

uint32_t Regions::take_id() {
    std::lock_guard lock(mutex_);
    if (ids_ == NEXAR_SHM_REGIONS_MAX || last_id_ == UINT32_MAX) return 0;
    ++ids_;
    return ++last_id_;
}

void Regions::give_back_id() {
    std::lock_guard lock(mutex_);
    --ids_;
}

bool Regions::hits(const std::byte* base, uint64_t bytes) const {
    const auto next = std::upper_bound(by_address_.begin(), by_address_.end(), base, by_base);
    if (next != by_address_.end() && (*next)->base < base + bytes) return true;
    return next != by_address_.begin() && (*std::prev(next))->base + (*std::prev(next))->bytes > base;
}

bool Regions::overlaps(const std::byte* base, uint64_t bytes) const {
    std::shared_lock lock(mutex_);
    return hits(base, bytes);
}

Result<Region*> Regions::insert(std::unique_ptr<Region> region) {
    std::lock_guard lock(mutex_);
    if (hits(region->base, region->bytes))
        return fail(Errc::invalid_argument, "part of this memory is registered already");
    const auto at = std::upper_bound(by_address_.begin(), by_address_.end(), region->base, by_base);
    return by_address_.insert(at, std::move(region))->get();
}

Result<Region*> Regions::begin_removal(const void* base, bool mapped_here) {
    std::lock_guard lock(mutex_);
    auto after = std::upper_bound(by_address_.begin(), by_address_.end(), base, by_base);
    if (after == by_address_.begin()) return fail(Errc::not_found, "no memory of this session starts there");
    Region& region = **std::prev(after);
    if (region.base != base || region.mapped_here != mapped_here || !region.ready.load())
        return fail(Errc::not_found, "no such memory of this session starts there");
    if (region.users.load(std::memory_order_acquire) != 0)
        return fail(Errc::bad_state, "a pending request uses this memory");
    region.ready.store(false, std::memory_order_release);
    return &region;
}

void Regions::erase(const Region* region) {
    std::lock_guard lock(mutex_);
    std::erase_if(by_address_, [&](const auto& known) { return known.get() == region; });
}

size_t Regions::count() const {
    std::shared_lock lock(mutex_);
    return by_address_.size();
}

uint64_t Scratch::arena_size(uint64_t limit) {
    const uint64_t share = std::bit_floor(std::max<uint64_t>(limit / 8, 1));
    return std::clamp(share, uint64_t{1} << smallest_shift, uint64_t{1} << arena_shift_max);
}

Result<ScratchBlock> Scratch::take(uint64_t bytes) {
    tidy_up();
    Lock lock(mutex_);
    bytes = std::max<uint64_t>(bytes, 1);
    const auto shift = std::max(static_cast<unsigned>(std::bit_width(bytes - 1)), smallest_shift);
    if (uint64_t{1} << shift >= arena_bytes_) return take_large(bytes, lock);
    auto block = take_small(shift, lock);
    if (block || block.error().code != Errc::no_memory) return block;
    if (const ScratchBlock larger = take_larger(shift)) return larger;
    return take_large(bytes, lock);  // without the rounding there may be room
}

Result<ScratchBlock> Scratch::take_small(unsigned shift, Lock& lock) {
    const uint64_t bytes = uint64_t{1} << shift;
    if (free_small_[shift].empty() && arena_.bytes < bytes) {
        NEXAR_TRY(Region * region, grow(arena_bytes_, lock));
        arenas_.emplace(region, 0);
        arena_ = {region, 0, arena_bytes_};  // the rest of the old arena is not used until all of it is idle
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

// An idle block that is larger than needed, or none.
ScratchBlock Scratch::take_larger(unsigned shift) {
    for (auto& blocks : std::span(free_small_).subspan(shift)) {
        if (blocks.empty()) continue;
        const ScratchBlock block = blocks.back();
        blocks.pop_back();
        ++arenas_.at(block.region);
        return block;
    }
    return {};
}

Result<ScratchBlock> Scratch::take_large(uint64_t bytes, Lock& lock) {
    auto best = free_large_.end();
    for (auto at = free_large_.begin(); at != free_large_.end(); ++at) {
        const bool suits = at->bytes >= bytes && at->bytes / 2 <= bytes && at->bytes - bytes <= limit_ / 8;
        if (suits && (best == free_large_.end() || at->bytes < best->bytes)) best = at;
    }
    if (best != free_large_.end()) {
        const ScratchBlock block = *best;
        free_large_.erase(best);
        return block;
    }
    // Rounded up if there is room, so that a later request of about this size can use the block.
    const uint64_t rounded = (bytes + arena_bytes_ - 1) / arena_bytes_ * arena_bytes_;
    const uint64_t wanted = bytes <= limit_ && fits(rounded, idle()) ? rounded : bytes;
    NEXAR_TRY(Region * region, grow(wanted, lock));
    return ScratchBlock{region, 0, wanted};
}

// Bytes of idle blocks and arenas, which take_idle() can free.
uint64_t Scratch::idle() const {
    uint64_t bytes = 0;
    for (const ScratchBlock& block : free_large_) bytes += block.bytes;
    for (const auto& [region, in_use] : arenas_)
        if (in_use == 0) bytes += arena_bytes_;
    return bytes;
}

ScratchBlock Scratch::take_idle() {
    if (free_large_.empty()) return take_idle_arena();
    const ScratchBlock block = free_large_.back();
    free_large_.pop_back();
    return block;
}

ScratchBlock Scratch::take_idle_arena() {
    const auto at = std::ranges::find_if(arenas_, [](const auto& arena) { return arena.second == 0; });
    Region* region = at->first;
    for (auto& blocks : free_small_)
        std::erase_if(blocks, [&](const ScratchBlock& block) { return block.region == region; });
    if (arena_.region == region) arena_ = {};
    arenas_.erase(at);
    return {region, 0, arena_bytes_};
}

bool Scratch::may_fit(uint64_t bytes) {
    Lock lock(mutex_);
    return fits(bytes, idle());
}

Result<Region*> Scratch::grow(uint64_t bytes, Lock& lock) {
    // Idle blocks are freed only if that makes enough room.
    while (!fits(bytes, 0) && fits(bytes, idle())) {
        const ScratchBlock given_up = take_idle();
        held_.fetch_sub(given_up.bytes, std::memory_order_relaxed);
        lock.unlock();
        destroy_(given_up.region);
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
    bytes = whole_pages(bytes);
    NEXAR_TRY(Region * region, create_(bytes));
    own_.fetch_add(bytes, std::memory_order_relaxed);
    return ScratchBlock{region, 0, bytes, true};
}

void Scratch::tidy_up() {
    if (!any_idle_own_.exchange(false, std::memory_order_relaxed)) return;
    std::vector<ScratchBlock> idle;
    {
        std::lock_guard lock(mutex_);
        idle.swap(idle_own_);
    }
    for (const ScratchBlock& block : idle) destroy_(block.region);
}

void Scratch::give_back(const ScratchBlock& block) {
    if (block.own) own_.fetch_sub(block.bytes, std::memory_order_relaxed);
    std::lock_guard lock(mutex_);
    if (block.own) {
        idle_own_.push_back(block);
        any_idle_own_.store(true, std::memory_order_relaxed);
    } else if (const auto arena = arenas_.find(block.region); arena != arenas_.end()) {
        free_small_[static_cast<unsigned>(std::bit_width(block.bytes)) - 1].push_back(block);
        --arena->second;
    } else {
        free_large_.push_back(block);
    }
}

}  // namespace nexar::c
