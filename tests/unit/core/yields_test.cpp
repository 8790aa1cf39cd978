#include "core/yields.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar {

namespace {

constexpr Duration microsecond{1000}, millisecond{1'000'000};

Time at(Duration d) {
    return Time(Duration(3'600'000'000'000) + d);
}

// From `from` on the thread yields whenever that pays, and each yield takes `took`; how many there are in
// `whole`.
size_t yields_in(Yields& yields, Duration from, Duration whole, Duration took) {
    size_t n = 0;
    for (Duration d = from; d < from + whole;) {
        if (!yields.pays(at(d))) {
            d += millisecond;
            continue;
        }
        ++n;
        yields.ended(at(d), at(d + took));
        d += took;
    }
    return n;
}

}  // namespace

TEST_CASE("short yields pay for ever", "[core][K30]") {
    Yields yields;
    CHECK(yields_in(yields, Duration{0}, 100 * millisecond, 10 * microsecond) == 10'000);
}

TEST_CASE("after a long yield a thread does without", "[core][K30]") {
    Yields yields;
    REQUIRE(yields.pays(at(Duration{0})));
    CHECK(yields.ended(at(Duration{0}), at(Yields::long_yield - Duration{1})));
    CHECK_FALSE(yields.ended(at(Duration{0}), at(3 * millisecond)));
    CHECK_FALSE(yields.pays(at(3 * millisecond + Yields::pause_min - Duration{1})));
    CHECK(yields.pays(at(3 * millisecond + Yields::pause_min)));
}

TEST_CASE("threads that share one long yield count it once", "[core][K30]") {
    Yields yields;
    for (int thread = 0; thread < 8; ++thread)
        CHECK_FALSE(yields.ended(at(Duration{0}), at(millisecond + thread * microsecond)));
    CHECK(yields.pays(at(millisecond + 8 * microsecond + Yields::pause_min)));
}

TEST_CASE("while yields are long there are few of them", "[core][K30]") {
    Yields yields;
    const Duration second = 1000 * millisecond;
    CHECK(yields_in(yields, Duration{0}, 2 * second, 3 * millisecond) <= 5);  // pauses of 0.2, 0.4, 0.8 s
    CHECK(yields_in(yields, 2 * second, 20 * second, 3 * millisecond) <= 11);
}

TEST_CASE("yields come back when they are short again", "[core][K30]") {
    Yields yields;
    const Duration second = 1000 * millisecond;
    yields_in(yields, Duration{0}, 10 * second, 3 * millisecond);
    const Duration later = 10 * second + Yields::pause_max;
    CHECK(yields.pays(at(later)));
    CHECK(yields_in(yields, later, 3 * second, 10 * microsecond) >= 290'000);
    // One long one after that is one: the next pause is the shortest.
    const Duration end = later + 3 * second;
    CHECK_FALSE(yields.ended(at(end), at(end + millisecond)));
    CHECK(yields.pays(at(end + millisecond + Yields::pause_min)));
}

}  // namespace nexar
