// Little-endian readers and writers with bounds. A reader that ran over its end stays failed and returns
// zeros, so that a decoder checks once, at the end.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace nexar {

static_assert(std::endian::native == std::endian::little, "nexar's shared memory and wire are little-endian");

using Bytes = std::span<const std::byte>;
using MutableBytes = std::span<std::byte>;

class Reader {
  public:
    explicit Reader(Bytes in) : in_(in) {}

    template <class T>
        requires std::is_trivially_copyable_v<T>
    T get() {
        T value{};
        if (sizeof(T) > in_.size()) {
            failed_ = true;
            in_ = {};
            return value;
        }
        std::memcpy(&value, in_.data(), sizeof(T));
        in_ = in_.subspan(sizeof(T));
        return value;
    }
    Bytes take(size_t n) {
        if (n > in_.size()) {
            failed_ = true;
            in_ = {};
            return {};
        }
        Bytes out = in_.first(n);
        in_ = in_.subspan(n);
        return out;
    }
    size_t left() const { return in_.size(); }
    bool failed() const { return failed_; }
    bool finished() const { return !failed_ && in_.empty(); }

  private:
    Bytes in_;
    bool failed_ = false;
};

class Writer {
  public:
    explicit Writer(std::vector<std::byte>& out) : out_(&out) {}

    template <class T>
        requires std::is_trivially_copyable_v<T>
    void put(const T& value) {
        const size_t at = out_->size();
        out_->resize(at + sizeof(T));
        std::memcpy(out_->data() + at, &value, sizeof(T));
    }
    void put_bytes(Bytes bytes) { out_->insert(out_->end(), bytes.begin(), bytes.end()); }

  private:
    std::vector<std::byte>* out_;
};

}  // namespace nexar
