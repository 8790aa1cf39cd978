// Memory of a job for tests: a logical range cut into extents at random element bounds, with canaries between
// them; and the simple reference that a job is compared with.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/random.hpp"
#include "engine/ports.hpp"
#include "support/regions.hpp"

namespace nexar::workers::test {

class Cut {
  public:
    Cut(Random& random, size_t bytes, size_t element) {
        std::vector<size_t> sizes;
        for (size_t left = bytes; left > 0;) {
            const size_t most = std::min<size_t>(left / element, 1 + random.below(300));
            sizes.push_back(random.one_in(8) ? 0 : (1 + random.below(most)) * element);
            left -= sizes.back();
        }
        if (random.one_in(2)) sizes.push_back(0);
        size_t total = gap;
        for (const size_t s : sizes) total += s + gap;
        store_.assign(total, canary);
        size_t at = gap;
        for (const size_t s : sizes) {
            extents_.push_back({nexar::test::place_of(store_.data() + at), s});
            at += s + gap;
        }
    }
    const link::Extents& extents() const { return extents_; }
    std::vector<std::byte> flat() const {
        std::vector<std::byte> out;
        for (const auto& e : extents_) out.insert(out.end(), e.data(), e.data() + e.bytes);
        return out;
    }
    void set(const std::vector<std::byte>& flat) {
        size_t at = 0;
        for (const auto& e : extents_) {
            if (e.bytes > 0) std::memcpy(e.data(), flat.data() + at, e.bytes);
            at += e.bytes;
        }
    }
    // Nothing outside the extents was written.
    bool canaries_live() const {
        std::vector<std::byte> copy = store_;
        for (const auto& e : extents_)
            std::fill_n(copy.begin() + (e.data() - store_.data()), e.bytes, canary);
        return std::ranges::count(copy, canary) == static_cast<ptrdiff_t>(copy.size());
    }

  private:
    static constexpr size_t gap = 24;
    static constexpr std::byte canary{0xa5};
    std::vector<std::byte> store_;
    link::Extents extents_;
};

template <class T>
std::vector<std::byte> numbers(size_t count, uint64_t salt) {
    Random random(salt * 7919 + 1);
    std::vector<std::byte> out(count * sizeof(T));
    for (size_t i = 0; i < count; ++i) {
        const auto value = static_cast<T>(random.next() >> 40);
        std::memcpy(out.data() + i * sizeof(T), &value, sizeof(T));
    }
    return out;
}
template <class T>
std::vector<std::byte> sum(const std::vector<std::vector<std::byte>>& inputs) {
    std::vector<std::byte> out = inputs[0];
    for (size_t i = 0; i < out.size(); i += sizeof(T)) {
        T total{};
        for (const auto& in : inputs) {
            T value;
            std::memcpy(&value, in.data() + i, sizeof(T));
            total = static_cast<T>(total + value);
        }
        std::memcpy(out.data() + i, &total, sizeof(T));
    }
    return out;
}

}  // namespace nexar::workers::test
