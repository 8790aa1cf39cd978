// Transcript: what a proof is of, or a key is derived from: a label that names the purpose, so that a proof
// for one purpose proves nothing for another, then fields in an order that both ends know. Every field has a
// width of its own or says its length, so that two lists of fields never have the same bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/bytes.hpp"
#include "core/ids.hpp"

namespace nexar {

class Transcript {
  public:
    void label(std::string_view purpose) { writer_.put_bytes(std::as_bytes(std::span(purpose))); }
    void text(std::string_view text) {
        put(static_cast<uint32_t>(text.size()));
        label(text);
    }
    template <class T>
        requires std::is_trivially_copyable_v<T>
    void put(const T& value) {
        static_assert(std::has_unique_object_representations_v<T>, "padding is no part of a transcript");
        writer_.put(value);
    }
    Bytes bytes() const { return bytes_; }

    Transcript() = default;
    Transcript(const Transcript&) = delete;

  private:
    std::vector<std::byte> bytes_;
    Writer writer_{bytes_};
};

// In the same time wherever they differ.
inline bool equal_in_constant_time(Bytes a, Bytes b) {
    if (a.size() != b.size()) return false;
    unsigned difference = 0;
    for (size_t i = 0; i < a.size(); ++i) difference |= std::to_integer<unsigned>(a[i] ^ b[i]);
    return difference == 0;
}

}  // namespace nexar
