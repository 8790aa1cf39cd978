// See allocations.hpp.
#include "support/allocations.hpp"

#include <cstdlib>
#include <new>

namespace {
thread_local size_t count = 0;
}

size_t nexar::test::allocations() {
    return count;
}

// In the whole program, and so in the libraries that it loads.
void* operator new(size_t bytes) {
    ++count;
    if (void* out = std::malloc(bytes == 0 ? 1 : bytes)) return out;
    throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
    std::free(memory);
}
