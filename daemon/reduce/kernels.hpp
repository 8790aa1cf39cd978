// Private to reduce/: one table of kernels per instruction set, and the tables that this CPU can run.
// Tests compare the sets through it; all other code calls reduce.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "reduce/dtype.hpp"

namespace nexar::reduce {

// One reduction. At least one source.
struct Job {
    std::span<void* const> dsts;
    std::span<const void* const> srcs;
    size_t bytes;
};

struct Kernels {
    const char* target;  // Highway's name of the instruction set.
    // sum, prod, min and max of numbers; what else there is, plain.hpp has.
    void (*reduce)(const Job& job, Dtype dtype, ReduceOp op);
    // Floating types only. The job has one source.
    void (*divide)(const Job& job, Dtype dtype, uint64_t divisor);
    void (*f16_to_f32)(void* f32, const void* f16, size_t count);
    void (*bf16_to_f32)(void* f32, const void* bf16, size_t count);
    void (*f32_to_f16)(void* f16, const void* f32, size_t count);
    void (*f32_to_bf16)(void* bf16, const void* f32, size_t count);
};

// What this CPU can run, best first; never empty.
std::span<const Kernels* const> usable_kernels();

// The table in use: the best one, unless a test chose. Null chooses the best again.
const Kernels& kernels();
void choose_kernels_for_test(const Kernels* chosen);

}  // namespace nexar::reduce
