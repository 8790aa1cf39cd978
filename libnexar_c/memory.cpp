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
    if (hits_next || hits_previous) return fail(Errc::invalid_argument, "part of this memory is registered already");
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
    const unsigned shift =
        std::max(smallest_shift, static_cast<unsigned>(std::bit_width(std::max<uint64_t>(bytes, 1) - 1)));
    std::lock_guard lock(mutex_);
    if (shift <= largest_shift && !free_[shift].empty()) {
        ScratchBlock block = free_[shift].back();
        free_[shift].pop_back();
        return block;
    }
    if (shift <= largest_shift && shift < arena_shift && arena_.bytes >> shift != 0) {
        ScratchBlock block{arena_.region, arena_.offset, uint64_t{1} << shift};
        arena_.offset += block.bytes;
        arena_.bytes -= block.bytes;
        return block;
    }
    if (shift > largest_shift)
        return fail(Errc::no_memory, std::to_string(bytes) + " bytes of scratch are beyond scratch_limit, which is " +
                                         std::to_string(limit_) + ": use memory from nexar_alloc");
    return grow(shift);
}

Result<ScratchBlock> Scratch::grow(unsigned shift) {
    const uint64_t bytes = uint64_t{1} << std::max(shift, arena_shift);
    if (bytes > limit_ - std::min(limit_, held())) drop_idle(bytes);
    if (bytes > limit_ - std::min(limit_, held()))
        return fail(Errc::no_memory, "copies of ordinary memory would take " + std::to_string(held() + bytes) +
                                         " bytes; scratch_limit is " + std::to_string(limit_) +
                                         ": use memory from nexar_alloc");
    NEXAR_TRY(Region * region, create_(bytes));
    held_.fetch_add(bytes, std::memory_order_relaxed);
    if (shift >= arena_shift) return ScratchBlock{region, 0, bytes};
    arena_ = {region, uint64_t{1} << shift, bytes - (uint64_t{1} << shift)};  // what was left is given up: < 1 MiB
    return ScratchBlock{region, 0, uint64_t{1} << shift};
}

// Unregisters large blocks that nobody uses, until `needed` bytes fit.
void Scratch::drop_idle(uint64_t needed) {
    for (unsigned shift = arena_shift; shift <= largest_shift; ++shift) {
        while (!free_[shift].empty() && needed > limit_ - std::min(limit_, held())) {
            ScratchBlock block = free_[shift].back();
            free_[shift].pop_back();
            held_.fetch_sub(block.bytes, std::memory_order_relaxed);
            destroy_(block.region);
        }
    }
}

void Scratch::give_back(const ScratchBlock& block) {
    std::lock_guard lock(mutex_);
    free_[static_cast<unsigned>(std::bit_width(block.bytes)) - 1].push_back(block);
}

}  // namespace nexar::c
