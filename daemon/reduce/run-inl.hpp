// run(): one reduction over whole buffers, a vector or four at a time. Compiled once per instruction set.
#if defined(NEXAR_REDUCE_RUN_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef NEXAR_REDUCE_RUN_INL_HPP
#undef NEXAR_REDUCE_RUN_INL_HPP
#else
#define NEXAR_REDUCE_RUN_INL_HPP
#endif

#include <hwy/highway.h>

#include "reduce/convert-inl.hpp"
#include "reduce/kernels.hpp"

HWY_BEFORE_NAMESPACE();
namespace nexar::reduce::HWY_NAMESPACE {

// The 8-bit floats, in a file of their own (kernels_f8.cpp): two files compile side by side.
void reduce_f8(const Job& job, Dtype dtype, ReduceOp op);
void divide_f8(const Job& job, Dtype dtype, uint64_t divisor);
void widen_f8(void* f32, const void* values, size_t count, Dtype dtype);
void narrow_f8(void* values, const void* f32, size_t count, Dtype dtype);

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

// Emulated vectors gain nothing from being four, and cost a minute of compile time.
template <bool four = HWY_TARGET != HWY_EMU128, class Combine>
void run(const Combine& combine, const Job& job) {
    const size_t step = hn::Lanes(D8());
    size_t at = 0;
    if constexpr (four) {
        for (; job.bytes - at >= 4 * step; at += 4 * step) reduce_four(combine, job, at, step);
    }
    for (; at < job.bytes; at += step) reduce_one(combine, job, at, HWY_MIN(step, job.bytes - at));
}

}  // namespace nexar::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
