// How many requests each user may make in a time.
#include "core/pace.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace nexar;
using namespace std::chrono_literals;

namespace {
constexpr uint32_t one = 2001, other = 2002;
constexpr Time start{1h};
}  // namespace

TEST_CASE("after a pause a few requests begin at once, then one an interval", "[U12][C8]") {
    Pace pace(100ms, 3);
    for (int i = 0; i < 3; ++i) {
        REQUIRE(pace.next(one, start) == start);
        pace.take(one, start);
    }
    REQUIRE(pace.next(one, start) == start + 100ms);
    REQUIRE(pace.next(one, start + 100ms) == start + 100ms);
    pace.take(one, start + 100ms);
    REQUIRE(pace.next(one, start + 100ms) == start + 200ms);
    REQUIRE(pace.next(one, start + 10s) == start + 10s);
}

TEST_CASE("a user's pace is his own, and one who has paused is not remembered", "[U12][C8]") {
    Pace pace(100ms, 1);
    for (int i = 0; i < 50; ++i) pace.take(one, start);
    REQUIRE(pace.next(one, start) == start + 5s);
    REQUIRE(pace.next(other, start) == start);
    pace.take(other, start + 6s);
    REQUIRE(pace.users() == 1);
}

TEST_CASE("without an interval there is no limit", "[U12]") {
    Pace pace(0ms, 1);
    for (int i = 0; i < 50; ++i) pace.take(one, start);
    REQUIRE(pace.next(one, start) == start);
    REQUIRE(pace.users() == 0);
}
