// Private to reduce/: the reductions that need no instruction set of their own. Bits, truth values and pairs
// are combined by ordinary loops, compiled once: their results cannot depend on the CPU, and they cost little
// to compile. They are slower than kernels: a third of the speed, pairs a tenth
// (tests/bench/reduce_bench.cpp).
#pragma once

#include "reduce/kernels.hpp"

namespace nexar::reduce {

// Whether reduce_plain() has this reduction of this type; the tables of kernels.hpp have the rest.
bool is_plain(Dtype dtype, ReduceOp op);
void reduce_plain(const Job& job, Dtype dtype, ReduceOp op);

}  // namespace nexar::reduce
