#include "core/lookout.hpp"

#include <catch2/catch_test_macros.hpp>

namespace nexar {
namespace {

constexpr Duration microsecond{1000};
constexpr Duration usual = 50 * microsecond;

// A thread whose work takes `work` each time, and comes so long after the end of the one before.
struct Thread {
    Lookout lookout{usual};
    Time now{Duration(3'600'000'000'000)};
    // True: it would have slept.
    bool wait(Duration gap, Duration work = microsecond) {
        const bool slept = !lookout.looks(now + gap);
        lookout.worked(now + gap, now + gap + work);
        now += gap + work;
        return slept;
    }
};

}  // namespace

TEST_CASE("a thread looks again after work that took longer than it looks", "[core][K30]") {
    Thread thread;
    thread.wait(Duration{0}, 300 * microsecond);
    CHECK(thread.lookout.looks(thread.now + usual - Duration{1}));
    CHECK_FALSE(thread.lookout.looks(thread.now + usual));
}

TEST_CASE("waits that are a little longer than it looks make a thread look for longer", "[core][K30]") {
    Thread thread;
    int slept = 0;
    for (int n = 0; n < 100; ++n) slept += thread.wait(150 * microsecond) ? 1 : 0;
    CHECK(slept <= 5);  // the first is longer than anything: the thread has just begun
    CHECK(thread.lookout.window() == Lookout::longest * usual);
    slept = 0;
    for (int n = 0; n < 99; ++n)  // a program that computes after two operations
        slept += thread.wait((n % 3 == 2 ? 5000 : 150) * microsecond) ? 1 : 0;
    CHECK(slept == 33);
}

TEST_CASE("where long waits are as many as short ones, or more, a thread looks for the usual time",
          "[core][K30]") {
    Thread thread;
    for (int n = 0; n < 20; ++n) thread.wait(150 * microsecond);
    for (int n = 0; n < 8; ++n) thread.wait(5000 * microsecond);
    for (int n = 0; n < 100; ++n) {
        thread.wait((n % 2 == 0 ? 5000 : 150) * microsecond);
        CHECK(thread.lookout.window() == usual);
    }
}

TEST_CASE("waits within the usual time say nothing", "[core][K30]") {
    Thread thread;
    for (int n = 0; n < 20; ++n) thread.wait(150 * microsecond);
    for (int n = 0; n < 1000; ++n) thread.wait(microsecond);
    CHECK(thread.lookout.window() == Lookout::longest * usual);
}

TEST_CASE("a thread that is not to look sleeps at once, always", "[core][K30]") {
    Lookout lookout{Duration{0}};
    const Time now{Duration(3'600'000'000'000)};
    for (int n = 0; n < 100; ++n) {
        lookout.worked(now + n * microsecond, now + n * microsecond);
        CHECK_FALSE(lookout.looks(now + n * microsecond));
    }
}

}  // namespace nexar
