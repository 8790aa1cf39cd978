// The numbers that look random but are the same on every machine and in every language: SplitMix64 (Steele,
// Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014). digits.py has the same three
// functions; the order of images and the initial weights depend on nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace digits {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        state_ += 0x9e3779b97f4a7c15u;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    // In [0, n). The bias of the plain remainder is below n / 2^64.
    size_t below(size_t n) { return static_cast<size_t>(next() % n); }

    // In [-1, 1), a multiple of 2^-23, so that no rounding happens in float, in double or in Python.
    float symmetric() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }

  private:
    uint64_t state_;
};

// Fisher and Yates, from the end.
template <class T>
void shuffle(std::span<T> items, Random& random) {
    for (size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[random.below(left)]);
}

// FNV-1a, 64 bits: for the data file and for comparing parameters between ranks; no protection against
// malice.
inline uint64_t fnv1a(std::span<const std::byte> bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
    return hash;
}

}  // namespace digits
