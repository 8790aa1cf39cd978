// The outgoing bytes of one stream: copied in, kept until acknowledged, in whole blocks from a pool. When
// nothing is held, the last block is begun again.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "core/bytes.hpp"

namespace nexar::quic {

// Blocks that all connections of an endpoint share. The pool keeps some free blocks: the system would clear
// returned memory of this size page by page each time.
class BlockPool {
  public:
    static constexpr size_t block_bytes = 128 * 1024;
    using Block = std::unique_ptr<std::byte[]>;

    explicit BlockPool(size_t free_blocks_max = 128) : free_blocks_max_(free_blocks_max) {}
    Block take();
    void give(Block block);

  private:
    size_t free_blocks_max_;   // a block beyond it is returned to the system
    std::vector<Block> free_;  // kept blocks
};

class SendQueue {
  public:
    explicit SendQueue(BlockPool& pool) : pool_(&pool) {}
    SendQueue(const SendQueue&) = delete;
    ~SendQueue() { clear(); }

    void append(Bytes bytes);
    size_t held() const { return static_cast<size_t>(end_ - acked_); }  // not acknowledged
    uint64_t appended() const { return end_; }
    uint64_t acknowledged() const { return acked_; }
    size_t unsent() const { return static_cast<size_t>(end_ - sent_); }

    static constexpr size_t pieces_max = 4;
    struct Pieces {
        std::array<Bytes, pieces_max> piece;
        size_t count = 0;
    };
    // The next unsent bytes, up to `limit` and up to four blocks. They stay where they are until
    // acknowledged.
    Pieces next(size_t limit) const;
    void mark_sent(size_t bytes) { sent_ += bytes; }
    void mark_acked(uint64_t up_to);
    void clear();

  private:
    BlockPool* pool_;
    std::deque<BlockPool::Block> blocks_;      // blocks_[i] holds offsets first_ + i * block_bytes and on
    uint64_t first_ = 0;                       // offset of blocks_[0]'s first byte
    uint64_t acked_ = 0, sent_ = 0, end_ = 0;  // acked_ <= sent_ <= end_
};

}  // namespace nexar::quic
