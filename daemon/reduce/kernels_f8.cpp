// The kernels of the 8-bit floats: kernels.cpp has the others, and the table of all.
#include <cstring>

#include "reduce/kernels.hpp"
#include "reduce/targets.hpp"
#if defined(__x86_64__)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "reduce/kernels_f8.cpp"
#include <hwy/foreach_target.h>
#endif
#include <hwy/highway.h>

#include "reduce/combine-inl.hpp"
#include "reduce/run-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace nexar::reduce::HWY_NAMESPACE {

// One vector has four of f32: enough side by side.
template <class Format>
void reduce_format(const Job& job, ReduceOp op) {
    if (op == ReduceOp::sum) run<false>(CombineQuarter<Format, ReduceOp::sum>(), job);
    if (op == ReduceOp::prod) run<false>(CombineQuarter<Format, ReduceOp::prod>(), job);
    if (op == ReduceOp::min) run<false>(CombineOrder<Format, ReduceOp::min, int8_t>(), job);
    if (op == ReduceOp::max) run<false>(CombineOrder<Format, ReduceOp::max, int8_t>(), job);
}

void reduce_f8(const Job& job, Dtype dtype, ReduceOp op) {
    return dtype == Dtype::f8e4m3fn ? reduce_format<F8e4m3fn>(job, op) : reduce_format<F8e5m2>(job, op);
}

void divide_f8(const Job& job, Dtype dtype, uint64_t divisor) {
    if (dtype == Dtype::f8e4m3fn) return run<false>(DivideQuarter<F8e4m3fn>(divisor), job);
    return run<false>(DivideQuarter<F8e5m2>(divisor), job);
}

void widen_f8(void* f32, const void* values, size_t count, Dtype dtype) {
    if (dtype == Dtype::f8e4m3fn) return widen_all<F8e4m3fn, uint8_t>(f32, values, count);
    widen_all<F8e5m2, uint8_t>(f32, values, count);
}

void narrow_f8(void* values, const void* f32, size_t count, Dtype dtype) {
    if (dtype == Dtype::f8e4m3fn) return narrow_all<F8e4m3fn, uint8_t>(values, f32, count);
    narrow_all<F8e5m2, uint8_t>(values, f32, count);
}

}  // namespace nexar::reduce::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
