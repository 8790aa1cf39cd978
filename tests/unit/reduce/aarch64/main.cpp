// Runs the test cases that have been compiled with the header beside this file.
#include <catch2/catch_test_macros.hpp>
#include <cstdlib>

#include "core/check.hpp"

namespace nexar {
void check_failed(const char* expression, const char* file, int line) {
    std::printf("%s:%d: %s\n", file, line, expression);
    std::abort();
}
}  // namespace nexar

int main(int, char** arguments) {
    const char* only = arguments[1];
    for (const mini::Case& one : mini::cases()) {
        if (only != nullptr && std::strstr(one.name, only) == nullptr) continue;
        const size_t before = mini::failures();
        try {
            one.run();
        } catch (const mini::Abandon&) {
        }
        if (mini::failures() != before)
            std::printf("%s: %s\n", one.may_fail ? "may fail" : "FAILED", one.name);
        if (one.may_fail) mini::failures() = before;
    }
    std::printf("%zu test cases, %zu checks, %zu failed\n", mini::cases().size(), mini::checks(),
                mini::failures());
    return mini::failures() == 0 ? 0 : 1;
}
