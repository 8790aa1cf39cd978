// Compiles the kernels once per instruction set (this file includes itself through foreach_target.h) and
// chooses among them at run time. The choice is made here, not by Highway's dispatcher, so that only
// Highway's headers are needed: libnexar_c must not depend on a shared Highway.
#include "reduce/kernels.hpp"

#include <cstring>

#if defined(__x86_64__)
// Left out to save compile time: what is newer than AVX3 (bits 0 to 7 in every version), which would change
// nothing in these kernels, and SSSE3.
#if defined(NEXAR_FEW_TARGETS)
#define HWY_DISABLED_TARGETS (0xffLL | HWY_SSSE3 | HWY_SSE4 | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS (0xffLL | HWY_SSSE3)
#endif
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels.cpp"
#include <hwy/foreach_target.h>
#else
// NEON is the baseline of AArch64; the kernels keep vectors in structs, so SVE is out.
#define HWY_COMPILE_ONLY_STATIC
#endif
#include <hwy/highway.h>

#include "reduce/combine-inl.hpp"
#include "reduce/convert-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace nexar::reduce::HWY_NAMESPACE {

constexpr size_t vector_bytes_max = hn::MaxLanes(D8());

HWY_INLINE V8 load(const Job& job, size_t source, size_t offset) {
    return hn::LoadU(D8(), static_cast<const uint8_t*>(job.srcs[source]) + offset);
}

HWY_INLINE void store(const Job& job, size_t offset, V8 result) {
    for (void* dst : job.dsts) hn::StoreU(result, D8(), static_cast<uint8_t*>(dst) + offset);
}

// Four vectors side by side hide the latency of the folds. All sources are read before anything is stored: a
// destination may be one of them.
template <class Combine>
HWY_INLINE void reduce_four(const Combine& combine, const Job& job, size_t at, size_t step) {
    auto acc0 = combine.begin(load(job, 0, at));
    auto acc1 = combine.begin(load(job, 0, at + step));
    auto acc2 = combine.begin(load(job, 0, at + 2 * step));
    auto acc3 = combine.begin(load(job, 0, at + 3 * step));
    for (size_t s = 1; s < job.srcs.size(); ++s) {
        acc0 = combine.fold(acc0, load(job, s, at));
        acc1 = combine.fold(acc1, load(job, s, at + step));
        acc2 = combine.fold(acc2, load(job, s, at + 2 * step));
        acc3 = combine.fold(acc3, load(job, s, at + 3 * step));
    }
    store(job, at, combine.end(acc0));
    store(job, at + step, combine.end(acc1));
    store(job, at + 2 * step, combine.end(acc2));
    store(job, at + 3 * step, combine.end(acc3));
}

// The rest of a buffer goes through the same vector instructions as all before it, if need be in a padded
// copy: an element's result does not depend on its position.
HWY_INLINE V8 load_at_most(const Job& job, size_t source, size_t offset, size_t bytes) {
    if (bytes == hn::Lanes(D8())) return load(job, source, offset);
    HWY_ALIGN uint8_t padded[vector_bytes_max] = {};
    std::memcpy(padded, static_cast<const uint8_t*>(job.srcs[source]) + offset, bytes);
    return hn::LoadU(D8(), padded);
}

HWY_INLINE void store_at_most(const Job& job, size_t offset, V8 result, size_t bytes) {
    if (bytes == hn::Lanes(D8())) return store(job, offset, result);
    HWY_ALIGN uint8_t padded[vector_bytes_max];
    hn::StoreU(result, D8(), padded);
    for (void* dst : job.dsts) std::memcpy(static_cast<uint8_t*>(dst) + offset, padded, bytes);
}

template <class Combine>
HWY_INLINE void reduce_one(const Combine& combine, const Job& job, size_t at, size_t bytes) {
    auto acc = combine.begin(load_at_most(job, 0, at, bytes));
    for (size_t s = 1; s < job.srcs.size(); ++s) acc = combine.fold(acc, load_at_most(job, s, at, bytes));
    store_at_most(job, at, combine.end(acc), bytes);
}

template <class Combine>
void run(const Combine& combine, const Job& job) {
    const size_t step = hn::Lanes(D8());
    size_t at = 0;
    // Emulated vectors gain nothing from being four, and cost a minute of compile time.
    if constexpr (HWY_TARGET != HWY_EMU128) {
        for (; job.bytes - at >= 4 * step; at += 4 * step) reduce_four(combine, job, at, step);
    }
    for (; at < job.bytes; at += step) reduce_one(combine, job, at, HWY_MIN(step, job.bytes - at));
}

template <ReduceOp op>
void run_arithmetic(const Job& job, Dtype dtype) {
    switch (dtype) {
        case Dtype::f32:
            return run(CombineFloat<float, op>(), job);
        case Dtype::f64:
            return run(CombineFloat<double, op>(), job);
        case Dtype::f16:
            return run(CombineHalf<F16, op>(), job);
        case Dtype::bf16:
            return run(CombineHalf<Bf16, op>(), job);
        case Dtype::i8:
        case Dtype::u8:
            return run(CombineInteger<uint8_t, op>(), job);
        case Dtype::i16:
        case Dtype::u16:
            return run(CombineInteger<uint16_t, op>(), job);
        case Dtype::i32:
        case Dtype::u32:
            return run(CombineInteger<uint32_t, op>(), job);
        case Dtype::i64:
        case Dtype::u64:
            return run(CombineInteger<uint64_t, op>(), job);
    }
}

template <ReduceOp op>
void run_order(const Job& job, Dtype dtype) {
    switch (dtype) {
        case Dtype::f32:
            return run(CombineFloat<float, op>(), job);
        case Dtype::f64:
            return run(CombineFloat<double, op>(), job);
        case Dtype::f16:
            return run(CombineHalfOrder<F16, op>(), job);
        case Dtype::bf16:
            return run(CombineHalfOrder<Bf16, op>(), job);
        case Dtype::i8:
            return run(CombineInteger<int8_t, op>(), job);
        case Dtype::u8:
            return run(CombineInteger<uint8_t, op>(), job);
        case Dtype::i16:
            return run(CombineInteger<int16_t, op>(), job);
        case Dtype::u16:
            return run(CombineInteger<uint16_t, op>(), job);
        case Dtype::i32:
            return run(CombineInteger<int32_t, op>(), job);
        case Dtype::u32:
            return run(CombineInteger<uint32_t, op>(), job);
        case Dtype::i64:
            return run(CombineInteger<int64_t, op>(), job);
        case Dtype::u64:
            return run(CombineInteger<uint64_t, op>(), job);
    }
}

void reduce(const Job& job, Dtype dtype, ReduceOp op) {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
            return run_arithmetic<ReduceOp::sum>(job, dtype);
        case ReduceOp::prod:
            return run_arithmetic<ReduceOp::prod>(job, dtype);
        case ReduceOp::min:
            return run_order<ReduceOp::min>(job, dtype);
        case ReduceOp::max:
            return run_order<ReduceOp::max>(job, dtype);
    }
}

void divide(const Job& job, Dtype dtype, uint64_t divisor) {
    if (dtype == Dtype::f32) run(DivideFloat<float>(divisor), job);
    if (dtype == Dtype::f64) run(DivideFloat<double>(divisor), job);
    if (dtype == Dtype::f16) run(DivideHalf<F16>(divisor), job);
    if (dtype == Dtype::bf16) run(DivideHalf<Bf16>(divisor), job);
}

// The name without its "N_".
constexpr Kernels table{&HWY_STR(HWY_NAMESPACE)[2],
                        reduce,
                        divide,
                        widen_all<F16>,
                        widen_all<Bf16>,
                        narrow_all<F16>,
                        narrow_all<Bf16>};

}  // namespace nexar::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <array>
#include <atomic>

namespace nexar::reduce {
namespace {

// The static target is what the compiler assumes of every CPU anyway, and always in the list.
#define NEXAR_COMPILED(target) ((HWY_TARGETS & (target)) && HWY_STATIC_TARGET != (target))

#if defined(__x86_64__)
// Each asks for all that Highway lets the compiler use there; the compiler's run-time checks the system's
// support for the wide registers too.
[[maybe_unused]] bool has_sse4() {
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") &&
           __builtin_cpu_supports("aes") && __builtin_cpu_supports("pclmul");
}

[[maybe_unused]] bool has_avx2() {
    return has_sse4() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") &&
           __builtin_cpu_supports("f16c") && __builtin_cpu_supports("lzcnt");
}

[[maybe_unused]] bool has_avx3() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd");
}
#endif

struct Usable {
    std::array<const Kernels*, 8> list{};
    size_t count = 0;

    void add(const Kernels& kernels) { list[count++] = &kernels; }

    Usable() {
#if NEXAR_COMPILED(HWY_AVX3)
        if (has_avx3()) add(N_AVX3::table);
#endif
#if NEXAR_COMPILED(HWY_AVX2)
        if (has_avx2()) add(N_AVX2::table);
#endif
#if NEXAR_COMPILED(HWY_SSE4)
        if (has_sse4()) add(N_SSE4::table);
#endif
        add(HWY_NAMESPACE::table);
    }
};

const Usable& usable() {
    static const Usable once;
    return once;
}

std::atomic<const Kernels*> chosen{nullptr};

}  // namespace

std::span<const Kernels* const> usable_kernels() {
    return {usable().list.data(), usable().count};
}

const Kernels& kernels() {
    const Kernels* in_use = chosen.load(std::memory_order_acquire);
    if (in_use != nullptr) return *in_use;
    choose_kernels_for_test(nullptr);
    return *usable().list[0];
}

void choose_kernels_for_test(const Kernels* choice) {
    // Pairs with the acquire in kernels().
    chosen.store(choice != nullptr ? choice : usable().list[0], std::memory_order_release);
}

}  // namespace nexar::reduce
#endif
