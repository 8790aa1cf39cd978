// A seeded generator, passed in and never global, so that a seed repeats a simulation. Source: splitmix64
// (Steele, Lea, Flood 2014), chosen for its state of one word. Not for secrets: those come from the TLS
// library.
#pragma once

#include <cstdint>

namespace nexar {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        uint64_t x = (state_ += 0x9e3779b97f4a7c15u);
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
        return x ^ (x >> 31);
    }
    // Uniform in [0, n); n > 0. The bias of the modulus is below 2^-32 for the small n used here.
    uint64_t below(uint64_t n) { return next() % n; }
    bool one_in(uint64_t n) { return below(n) == 0; }

  private:
    uint64_t state_;
};

}  // namespace nexar
