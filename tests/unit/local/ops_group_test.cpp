// Op groups and nexar_request_start_all: one submission, and what is refused meanwhile.
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <vector>

#include "calls.hpp"
#include "rank.hpp"
#include "test_daemon.hpp"

using namespace nexar;
using namespace nexar::test;

namespace {

constexpr size_t many = 32;

struct Sums {
    uint64_t in[many] = {}, out[many] = {};
    nexar_request requests[many] = {};
    nexar_status start(nexar_group* group, size_t i) {
        return nexar_all_reduce_start(group, in + i, out + i, 1, NEXAR_U64, NEXAR_SUM, nullptr, requests + i);
    }
    nexar_status init(nexar_group* group, size_t i) {
        return nexar_all_reduce_init(group, in + i, out + i, 1, NEXAR_U64, NEXAR_SUM, nullptr, requests + i);
    }
    void set(uint64_t base) {
        for (size_t i = 0; i < many; ++i) in[i] = base + i, out[i] = 0;
    }
    void check_and_free(uint64_t base) {
        REQUIRE(nexar_request_wait_all(requests, many, 10000, nullptr, 0) == NEXAR_OK);
        for (size_t i = 0; i < many; ++i) {
            CHECK(out[i] == base + i);
            CHECK(nexar_request_free(requests[i]) == NEXAR_OK);
        }
    }
};

}  // namespace

TEST_CASE("an op group is one submission: nothing before its end, and one doorbell at most", "[local][S24]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* alone = session.group("alone");
    Sums sums;
    sums.set(100);
    const size_t ops = daemon.counters.ops;
    REQUIRE(nexar_ops_begin(session.get()) == NEXAR_OK);
    REQUIRE(nexar_ops_begin(session.get()) == NEXAR_OK);  // nested
    for (size_t i = 0; i < many; ++i) REQUIRE(sums.start(alone, i) == NEXAR_OK);
    REQUIRE(nexar_ops_end(session.get()) == NEXAR_OK);
    CHECK(daemon.counters.ops == ops);

    // Pending, and nothing waits for them.
    CHECK(nexar_request_test(sums.requests[0], nullptr) == NEXAR_PENDING);
    CHECK(nexar_request_wait(sums.requests[0], 0, nullptr) == NEXAR_PENDING);
    CHECK(nexar_request_wait(sums.requests[0], 1000, nullptr) == NEXAR_ERR_BAD_STATE);
    CHECK(nexar_request_wait_all(sums.requests, many, 1000, nullptr, 0) == NEXAR_ERR_BAD_STATE);
    uint64_t index = 0;
    CHECK(nexar_request_wait_any(sums.requests, many, 1000, &index, nullptr) == NEXAR_ERR_BAD_STATE);
    CHECK(nexar_request_cancel(sums.requests[0]) == NEXAR_ERR_BAD_STATE);
    CHECK(nexar_request_free(sums.requests[0]) == NEXAR_ERR_BAD_STATE);
    CHECK(nexar_barrier(alone, nullptr) == NEXAR_ERR_BAD_STATE);
    CHECK(nexar_send(alone, nullptr, 0, NEXAR_U8, 0, 0, nullptr) == NEXAR_ERR_BAD_STATE);
    std::thread([&] {  // the turn is this thread's
        CHECK(nexar_barrier(alone, nullptr) == NEXAR_ERR_BAD_STATE);
        CHECK(nexar_ops_end(session.get()) == NEXAR_ERR_BAD_STATE);
    })
        .join();
    CHECK(daemon.counters.ops == ops);

    const uint64_t before = session.stats().doorbells;
    REQUIRE(nexar_ops_end(session.get()) == NEXAR_OK);
    CHECK(session.stats().doorbells <= before + 1);
    sums.check_and_free(100);
    CHECK(nexar_barrier(alone, nullptr) == NEXAR_OK);
    CHECK(nexar_ops_end(session.get()) == NEXAR_ERR_BAD_STATE);
    CHECK(nexar_ops_drop(session.get()) == NEXAR_ERR_BAD_STATE);
}

TEST_CASE("a dropped op group has started nothing", "[local][S24]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* alone = session.group("alone");
    Sums sums, persistent;
    sums.set(1), persistent.set(7);
    for (size_t i = 0; i < many; ++i) REQUIRE(persistent.init(alone, i) == NEXAR_OK);
    const size_t ops = daemon.counters.ops;
    REQUIRE(nexar_ops_begin(session.get()) == NEXAR_OK);
    for (size_t i = 0; i < many; ++i) REQUIRE(sums.start(alone, i) == NEXAR_OK);
    REQUIRE(nexar_request_start_all(persistent.requests, many) == NEXAR_OK);

    nexar_request twin = 0;
    REQUIRE(nexar_group_dup_start(alone, nullptr, &twin) == NEXAR_OK);
    CHECK(nexar_request_start(persistent.requests[0]) == NEXAR_ERR_BAD_STATE);
    REQUIRE(nexar_ops_drop(session.get()) == NEXAR_OK);

    CHECK(nexar_request_test(twin, nullptr) == NEXAR_ERR_BAD_HANDLE);
    for (size_t i = 0; i < many; ++i)
        CHECK(nexar_request_test(sums.requests[i], nullptr) == NEXAR_ERR_BAD_HANDLE);
    CHECK(daemon.counters.ops == ops);
    REQUIRE(nexar_request_start_all(persistent.requests, many) == NEXAR_OK);
    persistent.check_and_free(7);
    CHECK(nexar_barrier(alone, nullptr) == NEXAR_OK);
}

TEST_CASE("a call that is refused in an op group names itself, and the others are started", "[local][S24]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path());
    nexar_group* alone = session.group("alone");
    uint64_t in[3] = {1, 2, 3}, out[3] = {};
    nexar_request requests[3] = {};
    REQUIRE(nexar_ops_begin(session.get()) == NEXAR_OK);
    for (int i : {0, 1, 2}) {
        const nexar_dtype type = i == 1 ? 99 : NEXAR_U64;
        const nexar_status status =
            nexar_all_reduce_start(alone, in + i, out + i, 1, type, NEXAR_SUM, nullptr, requests + i);
        CHECK(status == (i == 1 ? NEXAR_ERR_INVALID_ARGUMENT : NEXAR_OK));
    }
    REQUIRE(nexar_ops_end(session.get()) == NEXAR_OK);
    CHECK(nexar_request_wait_all(requests, 3, 10000, nullptr, 0) == NEXAR_OK);
    CHECK((out[0] == 1 && out[1] == 0 && out[2] == 3));
}

TEST_CASE("start_all starts all or none, and names the first that cannot be", "[local][S24]") {
    ThreadDaemon daemon;
    const TestSession session(daemon.path()), other(daemon.path());
    nexar_group* alone = session.group("alone");
    Sums sums;
    sums.set(5);
    for (size_t i = 0; i < many; ++i) REQUIRE(sums.init(alone, i) == NEXAR_OK);
    nexar_request ordinary = 0;
    REQUIRE(nexar_barrier_start(alone, nullptr, &ordinary) == NEXAR_OK);
    REQUIRE(nexar_request_wait(ordinary, 10000, nullptr) == NEXAR_OK);
    nexar_request elsewhere = 0;
    REQUIRE(nexar_barrier_init(other.group("other"), nullptr, &elsewhere) == NEXAR_OK);
    const size_t ops = daemon.counters.ops;
    const struct {
        nexar_request wrong;
        nexar_status status;
    } cases[] = {{ordinary, NEXAR_ERR_INVALID_ARGUMENT},
                 {elsewhere, NEXAR_ERR_INVALID_ARGUMENT},
                 {sums.requests[2], NEXAR_ERR_BAD_STATE},  // twice
                 {12345, NEXAR_ERR_BAD_HANDLE}};
    for (const auto& one : cases) {
        CAPTURE(one.wrong, one.status);
        nexar_request requests[many];
        std::copy_n(sums.requests, many, requests);
        requests[17] = one.wrong;
        CHECK(nexar_request_start_all(requests, many) == one.status);
        CHECK(std::string(last_failure().text).find("request 17 ") != std::string::npos);
    }
    CHECK(nexar_request_start_all(nullptr, 1) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_start_all(sums.requests, 5000) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(nexar_request_start_all(nullptr, 0) == NEXAR_OK);
    CHECK(nexar_request_start(ordinary) == NEXAR_ERR_INVALID_ARGUMENT);
    CHECK(daemon.counters.ops == ops);
    const uint64_t before = session.stats().doorbells;
    REQUIRE(nexar_request_start_all(sums.requests, many) == NEXAR_OK);
    CHECK(session.stats().doorbells <= before + 1);
    sums.check_and_free(5);
}

TEST_CASE("a persistent request ends with its group and its session", "[local][S21][S24]") {
    ThreadDaemon daemon;
    uint64_t in = 1, out = 0;
    nexar_request request = 0, barrier = 0;
    {
        const TestSession session(daemon.path());
        nexar_group *first = session.group("first"), *second = session.group("second");
        REQUIRE(nexar_all_reduce_init(first, &in, &out, 1, NEXAR_U64, NEXAR_SUM, nullptr, &request) ==
                NEXAR_OK);
        REQUIRE(nexar_barrier_init(second, nullptr, &barrier) == NEXAR_OK);
        CHECK(nexar_group_free(first) == NEXAR_OK);
        CHECK(nexar_request_start(request) == NEXAR_ERR_CLOSED);
        const nexar_request both[] = {barrier, request};
        CHECK(nexar_request_start_all(both, 2) == NEXAR_ERR_CLOSED);
        CHECK(nexar_request_wait(request, 10000, nullptr) == NEXAR_OK);  // never started
        CHECK(nexar_request_free(request) == NEXAR_OK);
        CHECK(nexar_request_start(barrier) == NEXAR_OK);
        CHECK(nexar_request_wait(barrier, 10000, nullptr) == NEXAR_OK);
        REQUIRE(nexar_ops_begin(session.get()) == NEXAR_OK);
        CHECK(nexar_request_start(barrier) == NEXAR_OK);
    }
    CHECK(nexar_request_start(barrier) == NEXAR_ERR_CLOSED);
    CHECK(nexar_request_wait(barrier, 10000, nullptr) == NEXAR_ERR_CLOSED);
}
