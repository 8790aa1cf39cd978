// SendQueue and its pool.
#include "quic/send_queue.hpp"

#include <algorithm>
#include <cstring>

#include "core/check.hpp"

namespace nexar::quic {

BlockPool::Block BlockPool::take() {
    if (free_.empty()) return std::make_unique_for_overwrite<std::byte[]>(block_bytes);
    Block block = std::move(free_.back());
    free_.pop_back();
    return block;
}

void BlockPool::give(Block block) {
    if (free_.size() < free_blocks_max_) free_.push_back(std::move(block));
}

void SendQueue::append(Bytes bytes) {
    while (!bytes.empty()) {
        const size_t at = static_cast<size_t>(end_ - first_);
        const size_t within = at % BlockPool::block_bytes;
        if (at / BlockPool::block_bytes == blocks_.size()) blocks_.push_back(pool_->take());
        const size_t n = std::min(bytes.size(), BlockPool::block_bytes - within);
        std::memcpy(blocks_.back().get() + within, bytes.data(), n);
        end_ += n;
        bytes = bytes.subspan(n);
    }
}

SendQueue::Pieces SendQueue::next(size_t limit) const {
    Pieces out;
    uint64_t at = sent_;
    limit = std::min(limit, unsent());
    while (limit > 0 && out.count < pieces_max) {
        const size_t offset = static_cast<size_t>(at - first_);
        const size_t within = offset % BlockPool::block_bytes;
        const size_t n = std::min(limit, BlockPool::block_bytes - within);
        out.piece[out.count++] = Bytes(blocks_[offset / BlockPool::block_bytes].get() + within, n);
        at += n;
        limit -= n;
    }
    return out;
}

void SendQueue::mark_acked(uint64_t up_to) {
    NEXAR_CHECK(up_to <= sent_);
    acked_ = std::max(acked_, up_to);
    while (!blocks_.empty() && acked_ - first_ >= BlockPool::block_bytes) {
        pool_->give(std::move(blocks_.front()));
        blocks_.pop_front();
        first_ += BlockPool::block_bytes;
    }
    if (held() == 0)
        first_ = end_;  // the block is begun again: a stream with little to say touches few pages
}

void SendQueue::clear() {
    for (BlockPool::Block& block : blocks_) pool_->give(std::move(block));
    blocks_.clear();
    first_ = acked_ = sent_ = end_ = 0;
}

}  // namespace nexar::quic
