// A simulation is its seed: the generator's numbers never change.
#include "core/random.hpp"

#include <array>
#include <catch2/catch_test_macros.hpp>

using namespace nexar;

TEST_CASE("the numbers of a seed are fixed for ever", "[core]") {
    // splitmix64's published sequence for the seed 1234567.
    Random r(1234567);
    CHECK(r.next() == 6457827717110365317u);
    CHECK(r.next() == 3203168211198807973u);
    CHECK(r.next() == 9817491932198370423u);
    CHECK(r.next() == 4593380528125082431u);
    CHECK(r.next() == 16408922859458223821u);
}

TEST_CASE("equal seeds go alike, different ones apart", "[core]") {
    Random a(5), b(5), c(6);
    size_t equal = 0;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t x = a.next();
        REQUIRE(x == b.next());
        equal += x == c.next();
    }
    CHECK(equal == 0);
}

TEST_CASE("below() stays below and reaches everything, about evenly", "[core]") {
    Random r(7);
    std::array<size_t, 10> seen{};
    for (int i = 0; i < 10000; ++i) {
        const uint64_t x = r.below(10);
        REQUIRE(x < 10);
        ++seen[x];
    }
    for (const size_t n : seen) CHECK((n > 850 && n < 1150));
    for (int i = 0; i < 100; ++i) CHECK(r.one_in(1));
}
