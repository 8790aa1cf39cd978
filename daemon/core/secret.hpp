// Secret: bytes that are overwritten when their owner ends or takes others: private keys, tokens, and the
// files that hold them. A copy is a Secret as well; a std::string made of it is the maker's to wipe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/bytes.hpp"

namespace nexar {

// Overwrites with zeros; the compiler cannot leave it out, as it may a memset before a free.
void wipe(MutableBytes bytes);
// Also what lies beyond the text's end in its buffer; the text is empty then.
void wipe(std::string& text);

class Secret {
  public:
    Secret() = default;
    explicit Secret(std::string_view text);
    static Secret take(std::string text);  // wipes the argument: pass it by std::move
    Secret(const Secret& other) : Secret(other.text()) {}
    Secret(Secret&& other) noexcept : bytes_(std::move(other.bytes_)), size_(std::exchange(other.size_, 0)) {}
    Secret& operator=(Secret other) noexcept {  // `other` wipes what was here
        std::swap(bytes_, other.bytes_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~Secret() { wipe(); }

    std::string_view text() const { return {bytes_.get(), size_}; }
    Bytes bytes() const { return std::as_bytes(std::span(bytes_.get(), size_)); }
    bool empty() const { return size_ == 0; }
    size_t size() const { return size_; }
    void wipe();  // zeros, as many as there were bytes

    friend bool operator==(const Secret& a, const Secret& b) { return a.text() == b.text(); }

  private:
    std::unique_ptr<char[]> bytes_;
    size_t size_ = 0;
};

// The same for a fixed number of bytes.
template <size_t N>
struct SecretBytes : std::array<uint8_t, N> {
    SecretBytes() : std::array<uint8_t, N>{} {}
    explicit SecretBytes(const std::array<uint8_t, N>& bytes) : std::array<uint8_t, N>(bytes) {}
    SecretBytes(const SecretBytes&) = default;
    SecretBytes& operator=(const SecretBytes&) = default;
    ~SecretBytes() { wipe(std::as_writable_bytes(std::span(*this))); }
};

}  // namespace nexar
