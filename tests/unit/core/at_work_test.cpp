#include "core/at_work.hpp"

#include <catch2/catch_test_macros.hpp>

using nexar::AtWork;

TEST_CASE("a thread counts once from the begin of its work to the end", "[core][K35]") {
    uint32_t count = 0;
    AtWork one;
    CHECK_FALSE(AtWork::any(&count));
    {
        AtWork other;
        one.begin(&count);
        one.begin(&count);
        CHECK(count == 1);
        other.begin(&count);
        CHECK(count == 2);
    }
    CHECK(count == 1);  // one that goes has ended
    CHECK(AtWork::any(&count));
    one.end();
    one.end();
    CHECK(count == 0);
    one.begin(&count);
    CHECK(count == 1);
}

TEST_CASE("a thread that has nowhere to count works", "[core][K35]") {
    uint32_t count = 0;
    AtWork one;
    one.begin(nullptr);
    CHECK_FALSE(AtWork::any(nullptr));
    one.end();
    one.begin(&count);
    CHECK(count == 1);
}
