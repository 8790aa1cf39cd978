// Counts what this thread asks operator new for, in programs that link nexar_allocations: a test that says
// "no memory is asked for" compares two counts.
#pragma once

#include <cstddef>

namespace nexar::test {

size_t allocations();  // of this thread, so far

}  // namespace nexar::test
