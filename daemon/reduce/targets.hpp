// Which instruction sets the kernels are compiled for. Included before Highway, by each file that is compiled
// once per instruction set: all of them must have the same ones.
#pragma once

#if defined(__x86_64__)
// Left out to save compile time: what is newer than AVX3 (bits 0 to 7 in every version), which would change
// nothing in these kernels, and SSSE3.
#if defined(NEXAR_FEW_TARGETS)
#define HWY_DISABLED_TARGETS (0xffLL | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS (0xffLL | HWY_SSSE3)
#endif
#else
// NEON is the baseline of AArch64; the kernels keep vectors in structs, so SVE is out, also where the
// compiler may use it.
#define HWY_COMPILE_ONLY_STATIC
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
