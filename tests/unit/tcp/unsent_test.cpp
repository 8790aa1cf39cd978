// How much of bulk the kernel takes ahead of what is urgent.
#include "tcp/unsent.hpp"

#include <catch2/catch_test_macros.hpp>
#include <limits>

using namespace nexar::tcp;

TEST_CASE("what the kernel takes ahead is what leaves in 5 ms, within limits", "[tcp]") {
    CHECK(unsent_limit(0) == 128 * 1024);           // not measured
    CHECK(unsent_limit(12'500'000) == 128 * 1024);  // 100 Mbit/s: 10 ms
    CHECK(unsent_limit(125'000'000) == 625'000);    // 1 Gbit/s
    CHECK(unsent_limit(1'250'000'000) == 2 << 20);  // 10 Gbit/s: 1.7 ms
    CHECK(unsent_limit(std::numeric_limits<uint64_t>::max()) == 2 << 20);
}
