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
    // Of floats below 32 bits.
    void (*widen)(void* f32, const void* values, size_t count, Dtype dtype);
    void (*narrow)(void* values, const void* f32, size_t count, Dtype dtype);
};

// What this CPU can run, best first; never empty.
std::span<const Kernels* const> usable_kernels();

// The table in use: the best one, unless a test chose. Null chooses the best again.
const Kernels& kernels();
void choose_kernels_for_test(const Kernels* chosen);

}  // namespace nexar::reduce
