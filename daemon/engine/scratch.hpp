// ScratchPool: scratch regions of ops. It keeps returned ones, because a new 4 MiB costs a thousand page
// faults. Bounded by the memory in use (runs x lanes x segment) plus `kept_max`.
//
// Thread: the control loop's.
#pragma once

#include <bit>
#include <cstddef>
#include <vector>

#include "core/region.hpp"

namespace nexar::engine {

class ScratchPool {
  public:
    ScratchPool(Regions& regions, size_t kept_max) : regions_(&regions), kept_max_(kept_max) {}

    // Memory that its destructor returns to the pool.
    class Piece {
      public:
        Piece(ScratchPool& pool, RegionPin region) : pool_(&pool), region_(std::move(region)) {}
        Piece(Piece&&) = default;
        Piece& operator=(Piece&&) = delete;
        ~Piece() {
            if (region_) pool_->give_back(std::move(region_));
        }
        Place place() const { return {region_.get(), 0}; }
        size_t bytes() const { return region_->memory.bytes; }

      private:
        ScratchPool* pool_;
        RegionPin region_;
    };

    // What a piece of so many bytes takes.
    static constexpr size_t rounded(size_t bytes) { return std::bit_ceil(bytes < 64 ? size_t{64} : bytes); }
    Piece take(size_t bytes) {
        const size_t rounded = ScratchPool::rounded(bytes);
        in_use_ += rounded;
        auto& shelf = shelves_[static_cast<size_t>(std::countr_zero(rounded))];
        if (shelf.empty()) return {*this, regions_->add_scratch(rounded)};
        RegionPin region = std::move(shelf.back());
        shelf.pop_back();
        kept_ -= rounded;
        return {*this, std::move(region)};
    }
    size_t in_use() const { return in_use_; }
    size_t kept() const { return kept_; }

  private:
    void give_back(RegionPin region) {
        const uint64_t bytes = region->memory.bytes;
        in_use_ -= bytes;
        if (kept_ + bytes > kept_max_) return;
        kept_ += bytes;
        shelves_[static_cast<size_t>(std::countr_zero(bytes))].push_back(std::move(region));
    }

    Regions* regions_;
    std::vector<RegionPin> shelves_[64];  // by the logarithm of their bytes
    size_t kept_max_, kept_ = 0, in_use_ = 0;
};

}  // namespace nexar::engine
