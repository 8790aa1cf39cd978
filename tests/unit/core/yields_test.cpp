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
    CHECK_FALSE(yields.pays(at(6 * millisecond - Duration{1})));
    CHECK(yields.pays(at(6 * millisecond)));
}

TEST_CASE("threads that share one long yield count it once", "[core][K30]") {
    Yields yields;
    for (int thread = 0; thread < 8; ++thread)
        CHECK_FALSE(yields.ended(at(Duration{0}), at(millisecond + thread * microsecond)));
    CHECK(yields.pays(at(2 * millisecond)));
}

TEST_CASE("while yields are long there are few of them", "[core][K30]") {
    Yields yields;
    const Duration second = 1000 * millisecond;
    CHECK(yields_in(yields, Duration{0}, second, 3 * millisecond) <= 48);  // pauses of 3, 6, 12, 20 ms
    CHECK(yields_in(yields, second, 10 * second, 3 * millisecond) <= 440);
}

TEST_CASE("a few short ones between long ones change nothing", "[core][K30]") {
    Yields yields;
    size_t many = 0;
    Duration d{0};
    for (; d < 10'000 * millisecond; d += millisecond) {
        if (!yields.pays(at(d))) continue;
        for (int i = 0; i < 100; ++i) yields.ended(at(d), at(d + microsecond));
        yields.ended(at(d), at(d + 3 * millisecond));
        ++many;
    }
    CHECK(many <= 440);
}

TEST_CASE("long yields that the short ones between them pay for cost their own time again", "[core][K30]") {
    Yields yields;
    const Duration second = 1000 * millisecond;
    yields_in(yields, Duration{0}, 10 * second, 3 * millisecond);  // its pauses are long now
    Duration d = 10 * second + Yields::pause_max;
    for (int i = 0; i < 100; ++i) {
        REQUIRE(yields.pays(at(d)));
        CHECK(yields_in(yields, d, 10 * millisecond, 10 * microsecond) == 1000);
        d += 10 * millisecond;
        CHECK_FALSE(yields.ended(at(d), at(d + 3 * millisecond)));
        CHECK_FALSE(yields.pays(at(d + 6 * millisecond - Duration{1})));
        d += 6 * millisecond;
    }
}

TEST_CASE("bulk gives way to the pieces of others always, and rarely to what computes", "[core][K34]") {
    Yields pieces = Yields::between_pieces();
    const Duration second = 1000 * millisecond;
    CHECK(yields_in(pieces, Duration{0}, second, millisecond) == 1000);
    yields_in(pieces, second, second, 4 * millisecond);                         // its pauses become long
    CHECK(yields_in(pieces, 2 * second, 10 * second, 4 * millisecond) <= 100);  // 4 % of the time
}

TEST_CASE("bulk goes on giving way where one yield in many is long", "[core][K34]") {
    Yields pieces = Yields::between_pieces();
    const Duration piece = 300 * microsecond, long_one = 2 * millisecond;
    Duration d{0}, worked{0}, lost{0};
    size_t long_ones = 0;
    while (long_ones < 100) {
        bool short_ones_paid = true;
        for (int i = 0; i < 80; ++i) {
            d += piece;
            worked += piece;
            short_ones_paid &= pieces.pays(at(d)) && pieces.ended(at(d), at(d + 10 * microsecond));
        }
        CHECK(short_ones_paid);
        CHECK_FALSE(pieces.ended(at(d), at(d + long_one)));
        d += long_one;
        lost += long_one;
        ++long_ones;
        CHECK_FALSE(pieces.pays(at(d)));
        CHECK(pieces.pays(at(d + long_one)));  // the pause is no longer than that one was
        d += long_one;
        worked += long_one;
    }
    CHECK(10 * lost < worked);
}

TEST_CASE("yields may pay without bulk, and beside it with processors for the loop and the waiter",
          "[core][K35]") {
    for (const unsigned cores : {0u, 1u, 2u, 64u}) CHECK(Yields::may_pay(0, cores));
    for (const unsigned cores : {0u, 1u, 2u}) CHECK_FALSE(Yields::may_pay(1, cores));
    CHECK(Yields::may_pay(1, 3));
    CHECK(Yields::may_pay(6, 8));
    CHECK_FALSE(Yields::may_pay(7, 8));
    CHECK_FALSE(Yields::may_pay(UINT32_MAX, 8));
}

}  // namespace nexar
