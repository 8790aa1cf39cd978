// Waiting for a few requests asks for no memory: it is what a rank does between two steps.
#include "support/allocations.hpp"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "calls.hpp"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

TEST_CASE("waiting for up to 64 requests asks for no memory, for more it works all the same", "[local]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group *alone = session.group("alone"), *stuck = session.group("stuck");
    nexar_request pending = 0;
    REQUIRE(nexar_barrier_start(stuck, nullptr, &pending) == NEXAR_OK);
    for (const uint64_t count : {uint64_t{64}, uint64_t{65}}) {
        CAPTURE(count);
        std::vector<nexar_request> requests(count);
        for (nexar_request& request : requests)
            REQUIRE(nexar_barrier_start(alone, nullptr, &request) == NEXAR_OK);
        // The first look at an ended request stores its ending.
        REQUIRE(nexar_request_wait_all(requests.data(), count, 10000, nullptr, 0) == NEXAR_OK);
        uint64_t index = 0;
        size_t before = allocations();
        const nexar_status all = nexar_request_wait_all(requests.data(), count, 10000, nullptr, 0);
        const nexar_status any = nexar_request_wait_any(requests.data(), count, 10000, &index, nullptr);
        const nexar_status none = nexar_request_wait_any(&pending, 1, 20, &index, nullptr);
        const size_t asked = allocations() - before;
        CHECK(all == NEXAR_OK);
        CHECK(any == NEXAR_OK);
        CHECK(none == NEXAR_PENDING);
        CHECK((asked == 0) == (count == 64));
        before = allocations();
        ::operator delete(::operator new(100));
        CHECK(allocations() == before + 1);  // it does count
        for (const nexar_request request : requests) CHECK(nexar_request_free(request) == NEXAR_OK);
    }
    CHECK(nexar_request_cancel(pending) == NEXAR_OK);
    CHECK(nexar_request_wait(pending, 10000, nullptr) == NEXAR_ERR_CANCELLED);
}

TEST_CASE("a start of a persistent operation asks for no memory, nor does one of many at once",
          "[local][S21][S24]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* alone = session.group("alone");
    uint64_t in[32] = {}, out[32] = {};
    nexar_request requests[32];
    for (int i = 0; i < 32; ++i)
        REQUIRE(nexar_all_reduce_init(alone, in + i, out + i, 1, NEXAR_U64, NEXAR_SUM, nullptr,
                                      requests + i) == NEXAR_OK);
    nexar_status last = nexar_request_start(requests[0]);  // the first makes what threads and sessions keep
    if (last == NEXAR_OK) last = nexar_request_wait(requests[0], 10000, nullptr);
    const size_t before = allocations();
    for (uint64_t start = 1; start <= 100 && last == NEXAR_OK; ++start) {
        for (uint64_t& value : in) value = start;
        last = nexar_request_start(requests[0]);
        if (last == NEXAR_OK) last = nexar_request_wait(requests[0], 10000, nullptr);
        if (last == NEXAR_OK) last = nexar_request_start_all(requests, 32);
        if (last == NEXAR_OK) last = nexar_request_wait_all(requests, 32, 10000, nullptr, 0);
    }
    const size_t asked = allocations() - before;
    CHECK(last == NEXAR_OK);
    CHECK(asked == 0);
    CHECK(out[31] == 100);
    for (const nexar_request request : requests) CHECK(nexar_request_free(request) == NEXAR_OK);
}
