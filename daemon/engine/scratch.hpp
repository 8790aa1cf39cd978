// ScratchPool: scratch memory of ops. It keeps returned memory, because a new 4 MiB costs a thousand page
// faults. Bounded by the memory in use (runs x lanes x segment) plus `kept_max`.
//
// Thread: the control loop's.
#pragma once

#include <bit>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace nexar::engine {

class ScratchPool {
  public:
    explicit ScratchPool(size_t kept_max) : kept_max_(kept_max) {}

    // Memory that its destructor returns to the pool.
    class Piece {
      public:
        Piece(ScratchPool& pool, std::unique_ptr<std::byte[]> memory, size_t bytes)
            : pool_(&pool), memory_(std::move(memory)), bytes_(bytes) {}
        Piece(Piece&&) = default;
        Piece& operator=(Piece&&) = delete;
        ~Piece() {
            if (memory_) pool_->give_back(std::move(memory_), bytes_);
        }
        std::byte* data() const { return memory_.get(); }

      private:
        ScratchPool* pool_;
        std::unique_ptr<std::byte[]> memory_;
        size_t bytes_;
    };

    Piece take(size_t bytes) {
        const size_t rounded = std::bit_ceil(bytes < 64 ? size_t{64} : bytes);
        in_use_ += rounded;
        auto& shelf = shelves_[static_cast<size_t>(std::countr_zero(rounded))];
        if (shelf.empty()) return {*this, std::make_unique_for_overwrite<std::byte[]>(rounded), rounded};
        auto memory = std::move(shelf.back());
        shelf.pop_back();
        kept_ -= rounded;
        return {*this, std::move(memory), rounded};
    }
    size_t in_use() const { return in_use_; }
    size_t kept() const { return kept_; }

  private:
    void give_back(std::unique_ptr<std::byte[]> memory, size_t bytes) {
        in_use_ -= bytes;
        if (kept_ + bytes > kept_max_) return;
        kept_ += bytes;
        shelves_[static_cast<size_t>(std::countr_zero(bytes))].push_back(std::move(memory));
    }

    std::vector<std::unique_ptr<std::byte[]>> shelves_[64];
    size_t kept_max_, kept_ = 0, in_use_ = 0;
};

}  // namespace nexar::engine
