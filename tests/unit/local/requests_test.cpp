// What becomes of requests when threads, cancels and ends meet in unlucky ways.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>

#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

TEST_CASE("a cancel is not lost in a ring full of cancels", "[local][D12]") {
    ProcessDaemon daemon;
    const TestSession session(daemon.path(), {.slots = 16});
    nexar_group* group = session.group("stuck");
    nexar_request often = 0, once = 0;
    REQUIRE(nexar_barrier_start(group, &often) == NEXAR_OK);
    REQUIRE(nexar_barrier_start(group, &once) == NEXAR_OK);

    daemon.process().kill(SIGSTOP);
    for (int i = 0; i < 200; ++i) REQUIRE(nexar_cancel(often) == NEXAR_OK);
    REQUIRE(nexar_cancel(once) == NEXAR_OK);
    daemon.process().kill(SIGCONT);

    CHECK(nexar_wait(often, 10000, nullptr) == NEXAR_ERR_CANCELLED);
    CHECK(nexar_wait(once, 10000, nullptr) == NEXAR_ERR_CANCELLED);
}
