// Runs the test cases that have been compiled with the header beside this file.
#include <catch2/catch_test_macros.hpp>

int main(int, char** arguments) {
    const char* only = arguments[1];
    for (const mini::Case& one : mini::cases()) {
        if (only != nullptr && std::strstr(one.name, only) == nullptr) continue;
        const size_t before = mini::failures();
        mini::turn() = {};
        for (; mini::turn().now < mini::turn().all; ++mini::turn().now) {
            mini::turn().sections = 0;
            try {
                one.run();
            } catch (const mini::Abandon&) {
            }
        }
        if (mini::failures() != before)
            std::printf("%s: %s\n", one.may_fail ? "may fail" : "FAILED", one.name);
        if (one.may_fail) mini::failures() = before;
    }
    std::printf("%zu test cases, %zu checks, %zu failed\n", mini::cases().size(), mini::checks(),
                mini::failures());
    return mini::failures() == 0 ? 0 : 1;
}
