// The floating-point environment of IEEE 754 for the length of a scope: round to nearest even, subnormals
// kept, no traps. A client's thread may run with flush-to-zero, which any library linked with -ffast-math
// turns on; the daemon's threads run without it, and both must compute the same bits.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace nexar::reduce {

class FpEnv {
  public:
    FpEnv() : saved_(read()) {
        if (saved_ != standard) write(standard);
    }
    ~FpEnv() {
        if (saved_ != standard) write(saved_);
    }
    FpEnv(const FpEnv&) = delete;
    FpEnv& operator=(const FpEnv&) = delete;

  private:
#if defined(__x86_64__)
    using Word = unsigned;
    static constexpr Word standard = 0x1f80;  // All exceptions masked, no sticky flag, everything else off.
    static Word read() { return _mm_getcsr(); }
    static void write(Word word) { _mm_setcsr(word); }
#elif defined(__aarch64__)
    using Word = uint64_t;
    static constexpr Word standard = 0;
    static Word read() {
        Word word;
        __asm__ volatile("mrs %0, fpcr" : "=r"(word));
        return word;
    }
    static void write(Word word) { __asm__ volatile("msr fpcr, %0" : : "r"(word) : "memory"); }
#else
    using Word = unsigned;
    static constexpr Word standard = 0;
    static Word read() { return standard; }
    static void write(Word) {}
#endif

    Word saved_;
};

}  // namespace nexar::reduce
