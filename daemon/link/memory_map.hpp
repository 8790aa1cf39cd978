// The memory of a transfer: extents in logical order, addressed by logical offset. Resolved piece by piece.
#pragma once

#include <algorithm>
#include <vector>

#include "core/bytes.hpp"
#include "link/transfer.hpp"

namespace nexar::link {

class MemoryMap {
  public:
    void reset(Extents extents) {
        extents_ = std::move(extents);
        ends_.clear();
        bytes_ = 0;
        for (const Extent& e : extents_) ends_.push_back(bytes_ += e.bytes);
    }
    void clear() {
        extents_.clear();
        ends_.clear();
    }
    size_t bytes() const { return bytes_; }
    const Extents& extents() const { return extents_; }

    // f(pointer, bytes) for each run of [offset, offset + n), in order.
    template <class F>
    void pieces(size_t offset, size_t n, F&& f) const {
        if (n == 0) return;
        auto at = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
        for (; n > 0; ++at) {
            const size_t left = ends_[at] - offset;
            const size_t take = std::min(left, n);
            if (take > 0) f(extents_[at].data() + (extents_[at].bytes - left), take);
            offset += take;
            n -= take;
        }
    }

    // The run that begins at `offset`, at most n bytes of it.
    MutableBytes first_piece(size_t offset, size_t n) const {
        const auto at =
            static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), offset) - ends_.begin());
        const size_t left = ends_[at] - offset;
        return {extents_[at].data() + (extents_[at].bytes - left), std::min(left, n)};
    }

  private:
    Extents extents_;
    std::vector<size_t> ends_;  // ends_[i] = bytes of extents 0 .. i
    size_t bytes_ = 0;
};

}  // namespace nexar::link
