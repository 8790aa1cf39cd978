// PartsReader: parts one after the other, in pieces of any size: copied, or as they lie.
#pragma once

#include <algorithm>
#include <cstring>
#include <span>

#include "core/bytes.hpp"

namespace nexar::tcp {

class PartsReader {
  public:
    explicit PartsReader(std::span<const Bytes> parts) : parts_(parts) {
        for (const Bytes part : parts) left_ += part.size();
    }
    size_t left() const { return left_; }
    void read(std::byte* into, size_t bytes) {
        while (bytes > 0) {
            const Bytes piece = next(bytes);
            if (!piece.empty()) std::memcpy(into, piece.data(), piece.size());
            into += piece.size();
            bytes -= piece.size();
        }
    }
    // What comes next and lies together, at most so much. Requires: something is left.
    Bytes next(size_t most) {
        const Bytes rest = parts_.front().subspan(from_);
        const Bytes piece = rest.first(std::min(rest.size(), most));
        left_ -= piece.size();
        from_ += piece.size();
        if (from_ == parts_.front().size()) {
            parts_ = parts_.subspan(1);
            from_ = 0;
        }
        return piece;
    }

  private:
    std::span<const Bytes> parts_;
    size_t from_ = 0;  // of the first one
    size_t left_ = 0;
};

}  // namespace nexar::tcp
