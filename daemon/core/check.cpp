#include "core/check.hpp"

#include <cstdio>
#include <cstdlib>

namespace nexar {

void check_failed(const char* expression, const char* file, int line) {
    std::fprintf(stderr, "nexar: check failed: %s (%s:%d)\n", expression, file, line);
    std::abort();
}

}  // namespace nexar
