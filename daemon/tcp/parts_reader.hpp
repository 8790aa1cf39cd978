// PartsReader: copies parts one after the other, in pieces of any size.
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
        left_ -= bytes;
        while (bytes > 0) {
            const Bytes rest = parts_.front().subspan(from_);
            const size_t n = std::min(rest.size(), bytes);
            if (n != 0) std::memcpy(into, rest.data(), n);
            into += n;
            bytes -= n;
            from_ += n;
            if (from_ < parts_.front().size()) continue;
            parts_ = parts_.subspan(1);
            from_ = 0;
        }
    }

  private:
    std::span<const Bytes> parts_;
    size_t from_ = 0;  // of the first one
    size_t left_ = 0;
};

}  // namespace nexar::tcp
