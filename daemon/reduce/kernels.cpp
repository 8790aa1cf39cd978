// Compiles the kernels once per instruction set (this file includes itself through foreach_target.h) and
// chooses among them at run time. The choice is made here, not by Highway's dispatcher, so that only
// Highway's headers are needed: libnexar_c must not depend on a shared Highway.
#include "reduce/kernels.hpp"

#include <cstring>

#include "reduce/targets.hpp"
#if defined(__x86_64__)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels.cpp"
#include <hwy/foreach_target.h>
#endif
#include <hwy/highway.h>

#include "reduce/combine-inl.hpp"
#include "reduce/convert-inl.hpp"
#include "reduce/run-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace nexar::reduce::HWY_NAMESPACE {

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
        default:
            return;  // reduce() has taken the other types.
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
            return run(CombineOrder<F16, op>(), job);
        case Dtype::bf16:
            return run(CombineOrder<Bf16, op>(), job);
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
        default:
            return;
    }
}

void reduce(const Job& job, Dtype dtype, ReduceOp op) {
    if (dtype == Dtype::f8e4m3fn || dtype == Dtype::f8e5m2) return reduce_f8(job, dtype, op);
    switch (op) {
        case ReduceOp::sum:
            return run_arithmetic<ReduceOp::sum>(job, dtype);
        case ReduceOp::prod:
            return run_arithmetic<ReduceOp::prod>(job, dtype);
        case ReduceOp::min:
            return run_order<ReduceOp::min>(job, dtype);
        case ReduceOp::max:
            return run_order<ReduceOp::max>(job, dtype);
        default:
            return;  // Those of plain.cpp.
    }
}

void divide(const Job& job, Dtype dtype, uint64_t divisor) {
    if (dtype == Dtype::f32) run(DivideFloat<float>(divisor), job);
    if (dtype == Dtype::f64) run(DivideFloat<double>(divisor), job);
    if (dtype == Dtype::f16) run(DivideHalf<F16>(divisor), job);
    if (dtype == Dtype::bf16) run(DivideHalf<Bf16>(divisor), job);
    if (dtype == Dtype::f8e4m3fn || dtype == Dtype::f8e5m2) divide_f8(job, dtype, divisor);
}

void widen(void* f32, const void* values, size_t count, Dtype dtype) {
    if (dtype == Dtype::f16) return widen_all<F16>(f32, values, count);
    if (dtype == Dtype::bf16) return widen_all<Bf16>(f32, values, count);
    widen_f8(f32, values, count, dtype);
}

void narrow(void* values, const void* f32, size_t count, Dtype dtype) {
    if (dtype == Dtype::f16) return narrow_all<F16>(values, f32, count);
    if (dtype == Dtype::bf16) return narrow_all<Bf16>(values, f32, count);
    narrow_f8(values, f32, count, dtype);
}

// The name without its "N_".
constexpr Kernels table{&HWY_STR(HWY_NAMESPACE)[2], reduce, divide, widen, narrow};

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
