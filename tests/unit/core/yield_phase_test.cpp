#include "core/yield_phase.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;

namespace nexar {

namespace {

constexpr Duration window{50'000}, step{10'000};

// A thread that looks for work each 10 us, as long as it yields.
struct Waiter {
    Time now = Time(Duration(3'600'000'000'000));
    YieldPhase phase{window, now};

    // Work comes `later`. How many yields there are before it, or before the sleep.
    unsigned yields_for(Duration later) {
        const Time comes = now + later;
        unsigned n = 0;
        for (; phase.lasts(now) && now < comes; ++n) now += step;
        if (now < comes) {
            phase.slept();
            CHECK_FALSE(phase.lasts(now));  // one that brings nothing
            now = comes;
        }
        phase.worked(now);
        return n;
    }
    unsigned phases_of(unsigned waits, Duration later) {
        unsigned n = 0;
        for (unsigned i = 0; i < waits; ++i) n += yields_for(later) > 0 ? 1 : 0;
        return n;
    }
};

constexpr unsigned most = YieldPhase::misses_max, one_in = YieldPhase::tried_one_in;

}  // namespace

TEST_CASE("a phase lasts for the window after the last work") {
    Waiter waiter;
    CHECK(waiter.yields_for(30us) == 3);
    CHECK(waiter.yields_for(1ms) == 5);
    CHECK(waiter.yields_for(50us) == 5);
}

TEST_CASE("a sleep ends the phase, also one that had time left") {
    Waiter waiter;
    REQUIRE(waiter.phase.lasts(waiter.now));
    waiter.phase.slept();
    CHECK_FALSE(waiter.phase.lasts(waiter.now + step));
    waiter.phase.worked(waiter.now);
    CHECK(waiter.phase.lasts(waiter.now));
}

TEST_CASE("without a window there is no phase") {
    const Time now = Time(Duration(1));
    YieldPhase phase(Duration{}, now);
    phase.worked(now);
    CHECK_FALSE(phase.lasts(now));
}

TEST_CASE("where work comes later than that, one wait in many has a phase") {
    Waiter waiter;
    CHECK(waiter.phases_of(most, 116us) == most);
    CHECK(waiter.phases_of(10 * one_in, 116us) == 10);
}

TEST_CASE("one phase that finds work brings all of them back") {
    Waiter waiter;
    waiter.phases_of(most + one_in / 2, 116us);
    CHECK(waiter.phases_of(one_in, 30us) == one_in / 2 + 1);
    CHECK(waiter.phases_of(most, 116us) == most);
}

TEST_CASE("what finds work now and then keeps its phases") {
    Waiter waiter;
    for (int i = 0; i < 100; ++i) {
        CHECK(waiter.phases_of(most - 1, 116us) == most - 1);
        CHECK(waiter.yields_for(20us) == 2);
    }
}

}  // namespace nexar
